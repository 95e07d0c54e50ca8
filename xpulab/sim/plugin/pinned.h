// Pinned host memory: allocated through the device interface, so that the device may use it asynchronously.
#pragma once

#include <cstddef>

namespace sim::pinned {

void add(void* data, size_t bytes);
void remove(void* data);

// Whether the address is in such memory.
bool contains(const void* data);

}  // namespace sim::pinned
