// Functions for xpulab.sim, called through ctypes. A text is valid until the next call on the same thread.
#include <string>

#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "half_lists.h"
#include "limits.h"

extern "C" {

// Returns 0 when the faults are set, which also makes failed streams usable again; else xpulab_sim_last_error has the reason.
int xpulab_sim_set_faults(const char* text) {
  return sim::without_throwing([&] {
    sim::faults::set(text);
    sim::reset_failed_streams();
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

// As half::report.
const char* xpulab_sim_half_kernels() {
  static thread_local std::string shown;
  shown = sim::half::report();
  return shown.c_str();
}

// As half::why_not_of_one_tensor.
const char* xpulab_sim_why_no_half_kernel(const char* name) {
  static thread_local std::string shown;
  shown = sim::half::why_not_of_one_tensor(name);
  return shown.c_str();
}

}  // extern "C"
