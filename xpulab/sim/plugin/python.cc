// For xpulab.sim, through ctypes. A text stays valid until the next call.
#include <string>

#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "limits.h"

extern "C" {

// 0 when the faults are in force, and streams that had failed work again; else xpulab_sim_last_error says why.
int xpulab_sim_set_faults(const char* text) {
  return sim::unthrown([&] {
    sim::faults::set(text);
    sim::forgive_all();
  });
}

unsigned long long xpulab_sim_counter(int card, int counter) {
  if (card < 0 || card >= sim::kMostCards || counter < 0 || counter >= sim::counters::kCount) return 0;
  return sim::counters::read(card, counter);
}

const char* xpulab_sim_last_error() {
  static thread_local std::string shown;
  shown = sim::last_error();
  return shown.c_str();
}

}  // extern "C"
