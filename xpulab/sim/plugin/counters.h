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
  kAllocatedBytes,
  kLaunches,
  kFaults,
  kCount,
};

void add(int card, Counter counter, uint64_t amount);
void set(int card, Counter counter, uint64_t value);
uint64_t read(int card, int counter);

}  // namespace sim::counters
