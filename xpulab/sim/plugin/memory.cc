// See memory.h.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "error.h"

namespace sim {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kReturnBytes = 64 * 1024;  // from this size on the pages of a freed block are returned to the host

size_t rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment; }

void return_pages(char* from, size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto start = (reinterpret_cast<uintptr_t>(from) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(from) + bytes) / page * page;
  if (end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);
}

}  // namespace

Memory::Memory(std::string owner, size_t bytes) : owner_(std::move(owner)), total_(bytes) {}

void* Memory::allocate(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (base_ == nullptr) {
    void* reserved = mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      throw Error(owner_ + ": the host cannot reserve " + std::to_string(total_ >> 20) + " MiB of addresses (" +
                  std::strerror(errno) + "); set XPULAB_SIM_MEMORY to a smaller number of bytes");
    }
    base_ = static_cast<char*>(reserved);
    gaps_.emplace(0, total_);
  }
  if (bytes > total_) return nullptr;
  const size_t wanted = rounded(bytes);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& each) { return each.second >= wanted; });
  if (gap == gaps_.end()) return nullptr;
  const auto [start, size] = *gap;
  gaps_.erase(gap);
  if (size > wanted) gaps_.emplace(start + wanted, size - wanted);
  blocks_.emplace(start, wanted);
  used_ += wanted;
  return base_ + start;
}

void Memory::release(void* block) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<char*>(block) - base_));
  if (base_ == nullptr || found == blocks_.end()) {
    throw Error(owner_ + ": an address is freed that was not allocated", C_ERROR);
  }
  auto [start, size] = *found;
  blocks_.erase(found);
  used_ -= size;
  if (size >= kReturnBytes) return_pages(base_ + start, size);
  auto after = gaps_.lower_bound(start);
  if (after != gaps_.end() && after->first == start + size) {
    size += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin() && std::prev(after)->first + std::prev(after)->second == start) {
    std::prev(after)->second += size;
  } else {
    gaps_.emplace(start, size);
  }
}

void Memory::require(const void* data, size_t bytes) const {
  if (bytes == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto* address = static_cast<const char*>(data);
  if (base_ != nullptr && address >= base_ && address < base_ + total_) {
    const size_t offset = static_cast<size_t>(address - base_);
    auto block = blocks_.upper_bound(offset);
    if (block != blocks_.begin() && offset + bytes <= std::prev(block)->first + std::prev(block)->second) return;
  }
  throw Error(owner_ + ": illegal address: the " + std::to_string(bytes) +
              " bytes from this address on do not lie within one allocation");
}

size_t Memory::used() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

}  // namespace sim
