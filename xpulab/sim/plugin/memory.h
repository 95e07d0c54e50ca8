// The memory of a card: one reserved range of addresses. The host only provides pages that are in use.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace sim {

class Memory {
 public:
  Memory(std::string owner, size_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns the lowest gap that is large enough, so that the same program gets the same addresses; nullptr without one.
  // Throws sim::Error when the host cannot reserve the addresses.
  void* allocate(size_t bytes);
  void release(void* block);

  // Throws sim::Error (illegal address) unless [data, data + bytes) lies within one allocation.
  void require(const void* data, size_t bytes) const;

  size_t total() const { return total_; }
  size_t used() const;

 private:
  const std::string owner_;
  const size_t total_;
  mutable std::mutex mutex_;
  char* base_ = nullptr;             // reserved at the first allocation
  std::map<size_t, size_t> blocks_;  // offset -> bytes of each allocation
  std::map<size_t, size_t> gaps_;    // offset -> bytes of each free range, never two adjacent ones
  size_t used_ = 0;
};

}  // namespace sim
