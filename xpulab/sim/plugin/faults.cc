// See faults.h.
#include "faults.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "counters.h"
#include "error.h"
#include "fault_spec.h"
#include "limits.h"
#include "settings.h"

namespace sim::faults {
namespace {

constexpr std::chrono::seconds kHangMargin{5};

// A fault that is injected now. times: how often it has been; chosen: selects the bit that it flips.
struct Injection {
  std::string text, action;
  double seconds, factor;
  uint64_t chosen, times;
};

// None of these is ever destroyed: threads of streams may outlive main().
std::mutex& mutex = *new std::mutex;
std::condition_variable& replaced = *new std::condition_variable;
uint64_t generation = 0;
std::vector<Fault>& faults = *new std::vector<Fault>;
std::atomic<bool> present{false};
std::atomic<uint32_t> lost_cards{0};  // a bit for each card
static_assert(kMostCards <= 32);
thread_local std::chrono::steady_clock::time_point started;
thread_local uint64_t first_of_order = 0;

// The first ten times are reported, then the 100th, the 1000th and so on: a slow card is a fault in every task.
bool is_reported(uint64_t times) {
  while (times > 10 && times % 10 == 0) times /= 10;
  return times <= 10;
}

void report_injection(const Injection& fault, const char* kind, int card) {
  counters::add(card, counters::kFaults, 1);
  if (!is_reported(fault.times)) return;
  const std::string times = fault.times > 10 ? ", " + std::to_string(fault.times) + " times so far" : "";
  report("fault injected: " + fault.text + " (" + kind + " on card " + std::to_string(card) + times + ")");
}

// Lasts longer than every timeout, but not for ever, and ends when the faults are replaced: the process can continue then.
[[noreturn]] void hang(const std::string& what, const std::string& text) {
  std::unique_lock<std::mutex> lock(mutex);
  const uint64_t current = generation;
  replaced.wait_for(lock, settings().timeout + kHangMargin, [&] { return generation != current; });
  throw Error(what + " hung: injected fault '" + text + "'");
}

void inject(const Injection& fault, const char* kind, int card) {
  report_injection(fault, kind, card);
  const std::string what = std::string(kind) + " on card " + std::to_string(card);
  if (fault.action == "delay") std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
  if (fault.action == "fail") throw Error(what + " failed: injected fault '" + fault.text + "'");
  if (fault.action == "drop") _exit(kDropExitCode);
  if (fault.action == "reorder") first_of_order = fault.chosen + getpid();  // another order in each process, too
  if (fault.action == "hang") hang(what, fault.text);
  if (fault.action == "lose") {
    lost_cards |= 1u << card;
    require_present(card);
  }
}

// The faults that are due at this operation; `after`: those that act on its output.
std::vector<Injection> due_faults(const char* site, const char* kind, int card, bool after) {
  std::vector<Injection> found;
  std::lock_guard<std::mutex> lock(mutex);
  for (Fault& fault : faults) {
    if (fault.acts_on_result() != after || !fault.matches(site, kind, card) || !fault.is_due()) continue;
    const uint64_t chosen = fault.bit >= 0 ? static_cast<uint64_t>(fault.bit) : fault.random();
    found.push_back({fault.text, fault.action, fault.seconds, fault.factor, chosen, ++fault.times});
  }
  return found;
}

}  // namespace

void before(const char* site, const char* kind, int card) {
  first_of_order = 0;
  if (!any()) return;
  require_present(card);
  for (const Injection& each : due_faults(site, kind, card, false)) inject(each, kind, card);
  started = std::chrono::steady_clock::now();
}

void after(const char* site, const char* kind, int card, void* result, size_t bytes) {
  if (!any()) return;
  const auto took = std::chrono::steady_clock::now() - started;
  for (const Injection& each : due_faults(site, kind, card, true)) {
    if (each.action == "slow") {
      report_injection(each, kind, card);
      std::this_thread::sleep_for((each.factor - 1) * took);
    } else if (bytes > 0) {
      static_cast<char*>(result)[each.chosen / 8 % bytes] ^= static_cast<char>(1 << (each.chosen % 8));
      report_injection(each, kind, card);
    }
  }
}

uint64_t first_term(uint64_t count) { return count > 0 ? first_of_order % count : 0; }

void set(const std::string& text) {
  std::vector<Fault> replacement = parse(text);
  std::lock_guard<std::mutex> lock(mutex);
  faults = std::move(replacement);
  present = !faults.empty();
  lost_cards = 0;
  ++generation;
  replaced.notify_all();
}

bool any() { return present.load(std::memory_order_relaxed); }

void require_present(int card) {
  if (lost_cards.load(std::memory_order_relaxed) >> card & 1) {
    throw Error("card " + std::to_string(card) + " is lost: it fell off the bus (injected fault)");
  }
}

}  // namespace sim::faults
