// What the environment says about the simulated cards; read once, when the plug-in is first asked.
#pragma once

#include <chrono>
#include <cstddef>

namespace sim {

struct Settings {
  int cards;                           // XPULAB_SIM_CARDS, 1 to kMostCards
  size_t memory_bytes;                 // XPULAB_SIM_MEMORY, of each card
  std::chrono::milliseconds patience;  // XPULAB_SIM_TIMEOUT in seconds: a stream without progress for so long hangs
};

// Throws sim::Error when a variable does not hold what it should.
const Settings& settings();

}  // namespace sim
