// Limits and defaults, defined once in xpulab/sim/limits.py, whose DEFINITIONS must be passed to the compiler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

constexpr int kMostCards = XPULAB_SIM_MOST_CARDS;
constexpr size_t kMostRanks = kMostCards;
constexpr uint64_t kMemoryBytes = XPULAB_SIM_MEMORY_BYTES;
constexpr uint64_t kLeastMemoryBytes = XPULAB_SIM_LEAST_MEMORY_BYTES, kMostMemoryBytes = XPULAB_SIM_MOST_MEMORY_BYTES;
constexpr int kTimeoutSeconds = XPULAB_SIM_TIMEOUT_SECONDS;
constexpr int kDropExitCode = XPULAB_SIM_DROP_EXIT_CODE;

}  // namespace sim
