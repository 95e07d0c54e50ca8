// Copying and offsets of buffers that are null when they are empty.
#pragma once

#include <cstddef>
#include <cstring>

namespace sim::shm {

constexpr size_t kAlignment = 16;  // size of the largest element type

inline size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

inline void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

inline const char* at(const void* data, size_t bytes) {
  return bytes == 0 ? static_cast<const char*>(data) : static_cast<const char*>(data) + bytes;
}

inline char* at(void* data, size_t bytes) { return bytes == 0 ? static_cast<char*>(data) : static_cast<char*>(data) + bytes; }

}  // namespace sim::shm
