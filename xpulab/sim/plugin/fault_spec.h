// One fault of XPULAB_SIM_FAULTS: its parsed text, and when it is due.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace sim::faults {

struct Fault {
  std::string text, action, site, kind;
  int64_t card = -1, rank = -1, bit = -1;
  uint64_t n = 0, from = 0;
  double seconds = -1, factor = -1;
  std::mt19937_64 random;
  uint64_t seen = 0, times = 0;

  // Whether its conditions match an operation, apart from when.
  bool matches(std::string_view at, std::string_view what, int on) const;
  // Counts one more matching operation; returns whether the fault is injected at this one.
  bool is_due();
  bool acts_on_result() const { return action == "flip" || action == "slow"; }
};

// The faults of the text. Throws sim::Error for the first that the grammar does not allow.
std::vector<Fault> parse(const std::string& text);

}  // namespace sim::faults
