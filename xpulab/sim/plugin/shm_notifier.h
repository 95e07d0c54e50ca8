// Sleeping until another process has changed something in shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sim::shm {

// A counter in shared memory that ranks wait on. Call notify() after writing the data; a waiter then reads the data again.
struct Notifier {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> waiters{0};

  void notify() noexcept;
  // Sleeps until notify() was called after count had the value `seen`, or until the time is over. May return early.
  void wait(uint32_t seen, std::chrono::milliseconds longest) noexcept;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace sim::shm
