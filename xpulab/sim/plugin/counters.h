// Counters of what each card did, to prove that work was really done on it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sim::counters {

enum Counter : int {
  kBytesToDevice,
  kBytesToHost,
  kBytesOnDevice,
  kAllocations,
  kFrees,
  kAllocatedBytes,
  kPeakBytes,
  kLaunches,
  kTasks,
  kFaults,
  kHostAllocations,
  kCollectives,  // the first of one counter for each name in kCollectiveKinds
};

constexpr const char* kCollectiveKinds[] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                            "reduce_scatter", "all_to_all", "send",      "recv"};
constexpr int kCount = kCollectives + static_cast<int>(sizeof(kCollectiveKinds) / sizeof(kCollectiveKinds[0]));

void add(int card, Counter counter, uint64_t amount);
void set(int card, Counter counter, uint64_t value);
void raise_to(int card, Counter counter, uint64_t value);
void collective(int card, const char* kind, size_t bytes);
uint64_t read(int card, int counter);

}  // namespace sim::counters
