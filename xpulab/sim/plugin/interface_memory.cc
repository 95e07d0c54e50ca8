// Callbacks about memory: allocating it on a card or on the host, setting it, its size.
#include <cstring>

#include "card.h"
#include "counters.h"
#include "error.h"
#include "faults.h"
#include "interface.h"
#include "settings.h"

namespace sim {
namespace {

void count_memory(const Card& card) { counters::set(card.number, counters::kAllocatedBytes, card.memory.used()); }

// When there is no space, *ptr is nullptr and the status is success: Paddle then frees its cache, tries again, and reports
// that the device is out of memory.
C_Status device_memory_allocate(const C_Device device, void** ptr, size_t size) {
  return guarded([&] {
    Card& card = card_number(device->id);
    faults::require_present(card.number);
    faults::before("alloc", "alloc", card.number);
    *ptr = card.memory.allocate(size);
    count_memory(card);
  });
}

C_Status device_memory_deallocate(const C_Device device, void* ptr, size_t) {
  return unless_forked([&] {
    Card& card = card_number(device->id);
    try {
      drain(card);  // queued work may still use it
    } catch (const Error&) {
      // Every wait for the stream reports it. Nothing more runs on the stream, so nothing uses this memory.
    }
    card.memory.release(ptr);
    count_memory(card);
  });
}

C_Status device_memory_set(const C_Device device, void* ptr, unsigned char value, size_t size) {
  return guarded([&] {
    Card& card = card_number(device->id);
    faults::require_present(card.number);
    card.memory.require(ptr, size);
    drain(card);
    faults::before("copy", "set", card.number);
    std::memset(ptr, value, size);
    faults::after("copy", "set", card.number, ptr, size);
  });
}

C_Status device_memory_stats(const C_Device device, size_t* total, size_t* free) {
  return guarded([&] {
    const Memory& memory = card_number(device->id).memory;
    *total = memory.total();
    *free = memory.total() - memory.used();
  });
}

C_Status device_min_chunk_size(const C_Device, size_t* size) {
  *size = 256;
  return C_SUCCESS;
}

C_Status all_memory(const C_Device, size_t* size) {
  *size = settings().memory_bytes;
  return C_SUCCESS;
}

C_Status none(const C_Device, size_t* value) {
  *value = 0;
  return C_SUCCESS;
}

}  // namespace

void add_memory(C_DeviceInterface* interface) {
  interface->device_memory_allocate = device_memory_allocate;
  interface->device_memory_deallocate = device_memory_deallocate;
  interface->device_memory_set = device_memory_set;
  interface->device_memory_stats = device_memory_stats;
  interface->device_min_chunk_size = device_min_chunk_size;
  interface->device_max_chunk_size = all_memory;
  interface->device_max_alloc_size = all_memory;
  interface->device_extra_padding_size = none;
}

}  // namespace sim
