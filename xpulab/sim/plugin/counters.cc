// See counters.h.
#include "counters.h"

#include "limits.h"

namespace sim::counters {
namespace {

std::array<std::array<std::atomic<uint64_t>, kCount>, kMostCards> table{};

}  // namespace

void add(int card, Counter counter, uint64_t amount) { table[card][counter].fetch_add(amount, std::memory_order_relaxed); }

void set(int card, Counter counter, uint64_t value) { table[card][counter].store(value, std::memory_order_relaxed); }

uint64_t read(int card, int counter) { return table[card][counter].load(); }

}  // namespace sim::counters
