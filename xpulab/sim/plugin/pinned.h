// Host memory that was allocated for this device, which may read and write it while the host goes on.
#pragma once

#include <cstddef>

namespace sim::pinned {

void add(void* data, size_t bytes);
void remove(void* data);

// Whether the address is in such memory.
bool contains(const void* data);

}  // namespace sim::pinned
