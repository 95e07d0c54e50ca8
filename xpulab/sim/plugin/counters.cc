// See counters.h.
#include "counters.h"

#include <cstring>

#include "limits.h"

namespace sim::counters {
namespace {

std::array<std::array<std::atomic<uint64_t>, kCount>, kMostCards> table{};

}  // namespace

void add(int card, Counter counter, uint64_t amount) { table[card][counter].fetch_add(amount, std::memory_order_relaxed); }

void set(int card, Counter counter, uint64_t value) { table[card][counter].store(value, std::memory_order_relaxed); }

void raise_to(int card, Counter counter, uint64_t value) {
  auto& cell = table[card][counter];
  for (uint64_t seen = cell.load(); seen < value && !cell.compare_exchange_weak(seen, value);) {
  }
}

void collective(int card, const char* kind, size_t) {
  for (int index = kCollectives; index < kCount; ++index) {
    if (std::strcmp(kCollectiveKinds[index - kCollectives], kind) == 0) table[card][index].fetch_add(1);
  }
}

uint64_t read(int card, int counter) { return table[card][counter].load(); }

}  // namespace sim::counters
