// Settings of the simulated cards from environment variables; read once, at the first use.
#pragma once

#include <chrono>
#include <cstddef>

namespace sim {

struct Settings {
  int cards;                          // XPULAB_SIM_CARDS, 1 to kMostCards
  size_t memory_bytes;                // XPULAB_SIM_MEMORY, of each card
  std::chrono::milliseconds timeout;  // XPULAB_SIM_TIMEOUT in seconds: how long a wait lasts before it fails
};

// Throws sim::Error when a variable has an invalid value.
const Settings& settings();

}  // namespace sim
