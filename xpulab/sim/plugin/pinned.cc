// See pinned.h.
#include "pinned.h"

#include <map>
#include <mutex>

namespace sim::pinned {
namespace {

// Never destroyed: threads of streams may outlive main().
std::mutex& mutex = *new std::mutex;
std::map<const char*, size_t>& blocks = *new std::map<const char*, size_t>;  // address -> bytes

}  // namespace

void add(void* data, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  blocks.emplace(static_cast<const char*>(data), bytes);
}

void remove(void* data) {
  std::lock_guard<std::mutex> lock(mutex);
  blocks.erase(static_cast<const char*>(data));
}

bool contains(const void* data) {
  const auto* address = static_cast<const char*>(data);
  std::lock_guard<std::mutex> lock(mutex);
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return false;
  --after;
  return address < after->first + after->second;
}

}  // namespace sim::pinned
