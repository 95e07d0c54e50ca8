// The memory of a card: one range of addresses, of which as much is the host's as is in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace sim {

class Memory {
 public:
  Memory(std::string owner, size_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // The lowest gap that is large enough, so that the same program gets the same addresses; nullptr when there is none.
  // Throws sim::Error when the host gives no addresses.
  void* allocate(size_t bytes);
  void release(void* block);

  // Throws sim::Error unless [data, data + bytes) is allocated here, in one piece: an illegal address, as on any card.
  void require(const void* data, size_t bytes) const;

  // Inverts a bit of what is allocated now in [start, start + bytes); `chosen` picks which. False when nothing is there.
  bool flip(size_t start, size_t bytes, uint64_t chosen);

  size_t total() const { return total_; }
  size_t used() const;

 private:
  const std::string owner_;
  const size_t total_;
  mutable std::mutex mutex_;
  char* base_ = nullptr;             // reserved at the first allocation
  std::map<size_t, size_t> blocks_;  // offset -> bytes of what is allocated
  std::map<size_t, size_t> gaps_;    // offset -> bytes of what is not, no two of them side by side
  size_t used_ = 0;
};

}  // namespace sim
