// See fault_spec.h. The grammar is described in xpulab/sim/faults.py.
#include "fault_spec.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "error.h"

namespace sim::faults {
namespace {

// Read each time: ranks are forked from a process that has already read its faults.
bool is_this_rank(int64_t rank) {
  const char* mine = std::getenv("PADDLE_TRAINER_ID");
  return rank == std::atoll(mine ? mine : "0");
}

[[noreturn]] void reject(const std::string& fault, const std::string& why) {
  throw Error("XPULAB_SIM_FAULTS: '" + fault + "': " + why + "; the grammar is in xpulab/sim/faults.py", C_ERROR);
}

uint64_t whole(const std::string& text, const std::string& value, uint64_t least) {
  const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  errno = 0;
  const uint64_t number = digits ? std::strtoull(value.c_str(), nullptr, 10) : 0;
  if (!digits || errno != 0 || number >= uint64_t{1} << 63 || number < least) {
    reject(text, "'" + value + "' is not a whole number of at least " + std::to_string(least));
  }
  return number;
}

double fraction(const std::string& text, const std::string& value, double most) {
  const bool plain = !value.empty() && value.find_first_not_of("0123456789.") == std::string::npos;
  char* end = nullptr;
  const double number = plain ? std::strtod(value.c_str(), &end) : 0;
  if (!plain || *end != 0 || number > most) reject(text, "'" + value + "' is not a number from 0 to " + std::to_string(most));
  return number;
}

// Where a value is stored, and its range.
struct Fraction {
  double Fault::* member;  // from 0
  double most;
};

void set_value(Fault& fault, const std::string& key, const std::string& value) {
  static const std::map<std::string, int64_t Fault::*> kIndices{
      {"card", &Fault::card}, {"rank", &Fault::rank}, {"bit", &Fault::bit}};                                // from 0
  static const std::map<std::string, uint64_t Fault::*> kCounts{{"n", &Fault::n}, {"from", &Fault::from}};  // from 1
  static const std::map<std::string, Fraction> kFractions{{"seconds", {&Fault::seconds, 86400}},
                                                          {"factor", {&Fault::factor, 1e6}}};
  if (key == "kind") {
    fault.kind = value;
  } else if (const auto index = kIndices.find(key); index != kIndices.end()) {
    fault.*index->second = static_cast<int64_t>(whole(fault.text, value, 0));
  } else if (const auto count = kCounts.find(key); count != kCounts.end()) {
    fault.*count->second = whole(fault.text, value, 1);
  } else if (const auto fraction_of = kFractions.find(key); fraction_of != kFractions.end()) {
    fault.*fraction_of->second.member = fraction(fault.text, value, fraction_of->second.most);
  } else {
    reject(fault.text, "'" + key + "' is not a key");
  }
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> allowed) {
  return std::find(allowed.begin(), allowed.end(), word) != allowed.end();
}

bool kind_exists(const Fault& fault) {
  static const std::set<std::pair<std::string, std::string>> kinds = [] {
    std::set<std::pair<std::string, std::string>> known;
    for (const char* kind : {"h2d", "d2h", "d2d", "p2p", "set"}) known.emplace("copy", kind);
    for (const char* kind : {"contiguous", "strided_copy", "fill", "embedding_grad", "assign"}) known.emplace("launch", kind);
    for (const char* kind :
         {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send", "recv"}) {
      known.emplace("collective", kind);
    }
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
    if (equals == std::string::npos) reject(text, "'" + word + "' is not KEY=VALUE");
    const std::string key = word.substr(0, equals);
    if (!given.insert(key).second) reject(text, "'" + key + "' is given twice");
    set_value(fault, key, word.substr(equals + 1));
  }
  if (!is_one_of(fault.action, {"flip", "fail", "delay", "slow", "hang", "drop", "lose", "reorder"}))
    reject(text, "no such action");
  if (!is_one_of(fault.site, {"alloc", "copy", "launch", "collective", "task"})) reject(text, "no such site");
  if (fault.action == "reorder" && fault.kind != "embedding_grad") reject(text, "reorder needs kind=embedding_grad");
  if (fault.action == "flip" && is_one_of(fault.site, {"alloc", "task"})) reject(text, "this site has no bits to flip");
  if (fault.action == "slow" && fault.site == "alloc") reject(text, "slow needs a task");
  if ((fault.action == "delay") != (fault.seconds >= 0)) reject(text, "seconds= and the action delay need each other");
  if ((fault.action == "slow") != (fault.factor >= 0)) reject(text, "factor= and the action slow need each other");
  if (fault.action == "slow" && fault.factor < 1) reject(text, "factor must be at least 1");
  if (fault.bit >= 0 && fault.action != "flip") reject(text, "bit= needs the action flip");
  if (!fault.kind.empty() && !kind_exists(fault)) reject(text, "no such kind");
  if (fault.n > 0 && fault.from > 0) reject(text, "give only one of n and from");
  return fault;
}

}  // namespace

bool Fault::matches(std::string_view at, std::string_view what, int on) const {
  const bool here = site == at || (site == "task" && at != "alloc");
  return here && (kind.empty() || kind == what) && (card < 0 || card == on) && (rank < 0 || is_this_rank(rank));
}

bool Fault::is_due() {
  ++seen;
  return n ? seen == n : seen >= from;
}

std::vector<Fault> parse(const std::string& text) {
  std::vector<Fault> found;
  std::istringstream all(text);
  for (std::string one; std::getline(all, one, ';');) {
    const size_t first = one.find_first_not_of(" \t\n");
    if (first != std::string::npos) found.push_back(parsed(one.substr(first, one.find_last_not_of(" \t\n") - first + 1)));
  }
  return found;
}

}  // namespace sim::faults
