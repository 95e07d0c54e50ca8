#include "faults.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "card.h"
#include "counters.h"
#include "error.h"
#include "settings.h"

namespace sim::faults {
namespace {

constexpr int kExitCode = 113;  // of a process that is dropped

struct Fault {
  std::string text, action, site, kind;
  int64_t card = -1, rank = -1, bit = -1;
  uint64_t n = 0, from = 0, every = 0, bytes = 0, start = 0, size = SIZE_MAX, seed = 0;
  double probability = -1, seconds = -1, factor = -1;
  std::mt19937_64 random;
  uint64_t seen = 0, struck = 0;

  bool concerns(std::string_view at, std::string_view what, int on, size_t how_many) const {
    const bool here = site == at || ((site == "task" || site == "memory") && at != "alloc");
    return here && (kind.empty() || kind == what) && (card < 0 || card == on) && how_many >= bytes &&
           (rank < 0 || is_this_rank());
  }

  // Read each time: ranks are forked from a process that has read its faults already.
  bool is_this_rank() const {
    const char* mine = std::getenv("PADDLE_TRAINER_ID");
    return rank == std::atoll(mine ? mine : "0");
  }

  bool comes_up() {
    ++seen;
    if (n) return seen == n;
    if (seen < from) return false;
    if (every) return (seen - from) % every == 0;
    if (probability >= 0) return std::uniform_real_distribution<>()(random) < probability;
    return true;
  }

  bool acts_on_result() const { return (action == "flip" && site != "memory") || action == "slow"; }
};

// A fault that has come up. struck: how often by now; chosen: which bit it flips.
struct Strike {
  std::string text, action, site;
  double seconds, factor;
  uint64_t start, size, chosen, struck;
};

// None of these is ever destroyed: threads of streams may outlive main().
std::mutex& mutex = *new std::mutex;
std::condition_variable& replaced = *new std::condition_variable;
uint64_t generation = 0;
std::vector<Fault>& faults = *new std::vector<Fault>;
std::atomic<bool> present{false};
std::atomic<uint32_t> lost_cards{0};
thread_local std::chrono::steady_clock::time_point began;

[[noreturn]] void refuse(const std::string& fault, const std::string& why) {
  throw Error("XPULAB_SIM_FAULTS: '" + fault + "': " + why + "; the grammar is in xpulab/sim/faults.py", C_ERROR);
}

uint64_t whole(const std::string& text, const std::string& value, uint64_t least) {
  const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  errno = 0;
  const uint64_t number = digits ? std::strtoull(value.c_str(), nullptr, 10) : 0;
  if (!digits || errno != 0 || number >= uint64_t{1} << 63 || number < least) {
    refuse(text, "'" + value + "' is no whole number from " + std::to_string(least) + " on");
  }
  return number;
}

double fraction(const std::string& text, const std::string& value, double most) {
  const bool plain = !value.empty() && value.find_first_not_of("0123456789.") == std::string::npos;
  char* end = nullptr;
  const double number = plain ? std::strtod(value.c_str(), &end) : 0;
  if (!plain || *end != 0 || number > most) refuse(text, "'" + value + "' is no number from 0 to " + std::to_string(most));
  return number;
}

void take(Fault& fault, const std::string& key, const std::string& value) {
  const std::string& text = fault.text;
  if (key == "kind") fault.kind = value;
  else if (key == "card") fault.card = static_cast<int64_t>(whole(text, value, 0));
  else if (key == "rank") fault.rank = static_cast<int64_t>(whole(text, value, 0));
  else if (key == "bit") fault.bit = static_cast<int64_t>(whole(text, value, 0));
  else if (key == "n") fault.n = whole(text, value, 1);
  else if (key == "from") fault.from = whole(text, value, 1);
  else if (key == "every") fault.every = whole(text, value, 1);
  else if (key == "seed") fault.seed = whole(text, value, 0);
  else if (key == "bytes>") fault.bytes = whole(text, value, 0);  // bytes>=N, cut at the "="
  else if (key == "start") fault.start = whole(text, value, 0);
  else if (key == "size") fault.size = whole(text, value, 1);
  else if (key == "p") fault.probability = fraction(text, value, 1);
  else if (key == "seconds") fault.seconds = fraction(text, value, 86400);
  else if (key == "factor") fault.factor = fraction(text, value, 1e6);
  else refuse(text, "'" + key + "' is no key");
}

bool one_of(const std::string& word, std::initializer_list<const char*> allowed) {
  return std::find(allowed.begin(), allowed.end(), word) != allowed.end();
}

bool kind_exists(const Fault& fault) {
  static const std::set<std::pair<std::string, std::string>> kinds = [] {
    std::set<std::pair<std::string, std::string>> known;
    for (const char* kind : {"h2d", "d2h", "d2d", "p2p", "set"}) known.emplace("copy", kind);
    for (const char* kind : {"contiguous", "strided_copy", "fill", "embedding_grad", "assign"}) known.emplace("launch", kind);
    for (const char* kind : counters::kCollectiveKinds) known.emplace("collective", kind);
    return known;
  }();
  if (fault.site != "task") return kinds.count({fault.site, fault.kind}) > 0;
  return std::any_of(kinds.begin(), kinds.end(), [&](const auto& known) { return known.second == fault.kind; });
}

Fault parsed(const std::string& text) {
  std::istringstream words(text);
  Fault fault;
  fault.text = text;
  words >> fault.action >> fault.site;
  std::set<std::string> given;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) refuse(text, "'" + word + "' is not KEY=VALUE");
    const std::string key = word.substr(0, equals);
    if (!given.insert(key).second) refuse(text, "'" + key + "' is given twice");
    take(fault, key, word.substr(equals + 1));
  }
  if (!one_of(fault.action, {"flip", "fail", "delay", "slow", "hang", "drop", "lose"})) refuse(text, "no such action");
  if (!one_of(fault.site, {"alloc", "copy", "launch", "collective", "task", "memory"})) refuse(text, "no such site");
  if (fault.site == "memory" && fault.action != "flip") refuse(text, "memory can only be flipped");
  if (fault.action == "flip" && one_of(fault.site, {"alloc", "task"})) refuse(text, "there are no bits to flip");
  if (fault.action == "slow" && fault.site == "alloc") refuse(text, "slow is for tasks");
  if ((fault.action == "delay") != (fault.seconds >= 0)) refuse(text, "seconds= goes with delay");
  if ((fault.action == "slow") != (fault.factor >= 0)) refuse(text, "factor= goes with slow");
  if (fault.action == "slow" && fault.factor < 1) refuse(text, "factor is from 1 on");
  if (fault.bit >= 0 && fault.action != "flip") refuse(text, "bit= goes with flip");
  const bool has_place = given.count("start") > 0 || given.count("size") > 0;
  if (has_place && fault.site != "memory") refuse(text, "start= and size= go with memory");
  if (!fault.kind.empty() && !kind_exists(fault)) refuse(text, "no such kind");
  const int ways = (fault.n > 0) + (fault.from > 0 || fault.every > 0) + (fault.probability >= 0);
  if (ways > 1) refuse(text, "n, from or every, p: only one");
  fault.random.seed(fault.seed);
  return fault;
}

// One line each of the first ten times, then for the 100th, the 1000th ...: a slow card strikes with every task.
bool is_told(uint64_t times) {
  while (times > 10 && times % 10 == 0) times /= 10;
  return times <= 10;
}

void fired(const Strike& fault, const char* kind, int card) {
  counters::add(card, counters::kFaults, 1);
  if (!is_told(fault.struck)) return;
  const std::string times = fault.struck > 10 ? ", " + std::to_string(fault.struck) + " times by now" : "";
  report("fault fired: " + fault.text + " (" + kind + " on card " + std::to_string(card) + times + ")");
}

// Longer than anybody waits, and not for ever: the process must be able to go on when it was told to.
[[noreturn]] void hang(const std::string& what, const std::string& text) {
  std::unique_lock<std::mutex> lock(mutex);
  const uint64_t here = generation;
  replaced.wait_for(lock, settings().patience + std::chrono::seconds(5), [&] { return generation != here; });
  throw Error(what + " hung: injected fault '" + text + "'");
}

void strike(const Strike& fault, const char* kind, int card) {
  fired(fault, kind, card);
  const std::string what = std::string(kind) + " on card " + std::to_string(card);
  if (fault.action == "delay") std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
  if (fault.action == "fail") throw Error(what + " failed: injected fault '" + fault.text + "'");
  if (fault.action == "drop") _exit(kExitCode);
  if (fault.action == "hang") hang(what, fault.text);
  if (fault.action == "lose") {
    lost_cards |= 1u << card;
    require_present(card);
  }
  if (fault.site == "memory" && !card_number(card).memory.flip(fault.start, fault.size, fault.chosen)) {
    report("fault without effect: nothing is allocated where '" + fault.text + "' wanted to flip a bit");
  }
}

// The faults of this place which come up now; `after`: those that act on a result.
std::vector<Strike> coming_up(const char* site, const char* kind, int card, size_t bytes, bool after) {
  std::vector<Strike> found;
  std::lock_guard<std::mutex> lock(mutex);
  for (Fault& fault : faults) {
    if (fault.acts_on_result() != after || !fault.concerns(site, kind, card, bytes) || !fault.comes_up()) continue;
    const uint64_t chosen = fault.bit >= 0 ? static_cast<uint64_t>(fault.bit) : fault.random();
    found.push_back({fault.text, fault.action, fault.site, fault.seconds, fault.factor, fault.start, fault.size, chosen,
                     ++fault.struck});
  }
  return found;
}

}  // namespace

void before(const char* site, const char* kind, int card, void*, size_t bytes) {
  if (!any()) return;
  require_present(card);
  for (const Strike& each : coming_up(site, kind, card, bytes, false)) strike(each, kind, card);
  began = std::chrono::steady_clock::now();
}

void after(const char* site, const char* kind, int card, void* result, size_t bytes) {
  if (!any()) return;
  const auto took = std::chrono::steady_clock::now() - began;
  for (const Strike& each : coming_up(site, kind, card, bytes, true)) {
    if (each.action == "slow") {
      fired(each, kind, card);
      std::this_thread::sleep_for((each.factor - 1) * took);
    } else if (bytes > 0) {
      static_cast<char*>(result)[each.chosen / 8 % bytes] ^= static_cast<char>(1 << (each.chosen % 8));
      fired(each, kind, card);
    }
  }
}

void set(const std::string& text) {
  std::vector<Fault> wanted;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ';');) {
    const size_t first = one.find_first_not_of(" \t\n");
    if (first != std::string::npos) wanted.push_back(parsed(one.substr(first, one.find_last_not_of(" \t\n") - first + 1)));
  }
  std::lock_guard<std::mutex> lock(mutex);
  faults = std::move(wanted);
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
