// Sleeping until another process has changed something in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sim::shm {

// A word in shared memory that ranks sleep on. ring() after the data is written; a sleeper looks at the data again.
struct Bell {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleepers{0};

  void ring() noexcept;
  // Sleeps until the bell was rung after count had been seen, or the time is over. May wake for no reason.
  void sleep(uint32_t seen, std::chrono::milliseconds longest) noexcept;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace sim::shm
