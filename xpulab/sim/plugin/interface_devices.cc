// Callbacks about devices: how many there are, which is current, what they support.
#include <cstdlib>

#include "card.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "half_lists.h"
#include "in_place.h"
#include "interface.h"
#include "settings.h"
#include "wheel.h"

namespace sim {
namespace {

thread_local int current_card = 0;

C_Status initialize() {
  return guarded([] {
    settings();
    const char* text = std::getenv("XPULAB_SIM_FAULTS");
    faults::set(text ? text : "");
    std::atexit(stop_streams);
    cache_stream_wrappers();
    keep_memory_of_operators_in_place();
    share_random_state(settings().cards);
  });
}

C_Status finalize() { return C_SUCCESS; }

C_Status init_device(const C_Device device) {
  return guarded([&] { card_number(device->id); });
}

C_Status set_device(const C_Device device) {
  if (is_forked()) return C_SUCCESS;  // Paddle calls it from destructors when a child ends
  return guarded([&] {
    current_card = card_number(device->id).number;  // also for a lost card: Paddle calls this from destructors
    if (half::is_wanted()) let_auto_cast_ask();
  });
}

C_Status get_device(const C_Device device) {
  device->id = current_card;
  return C_SUCCESS;
}

C_Status deinit_device(const C_Device) { return C_SUCCESS; }

C_Status synchronize_device(const C_Device device) {
  return guarded([&] {
    faults::require_present(device->id);
    drain(card_number(device->id));
  });
}

C_Status get_device_count(size_t* count) {
  return guarded([&] { *count = settings().cards; });
}

C_Status get_device_list(size_t* devices) {
  return guarded([&] {
    for (int card = 0; card < settings().cards; ++card) devices[card] = card;
  });
}

C_Status none(const C_Device, size_t* value) {
  *value = 0;
  return C_SUCCESS;
}

C_Status one(const C_Device, size_t* value) {
  *value = 1;
  return C_SUCCESS;
}

C_Status yes(const C_Device, bool* supported) {
  *supported = true;
  return C_SUCCESS;
}

C_Status no(const C_Device, bool* supported) {
  *supported = false;
  return C_SUCCESS;
}

}  // namespace

void add_devices(C_DeviceInterface* interface) {
  interface->initialize = initialize;
  interface->finalize = finalize;
  interface->init_device = init_device;
  interface->set_device = set_device;
  interface->get_device = get_device;
  interface->deinit_device = deinit_device;
  interface->synchronize_device = synchronize_device;
  interface->get_device_count = get_device_count;
  interface->get_device_list = get_device_list;
  interface->get_compute_capability = none;
  interface->get_multi_process = one;
  interface->get_max_threads_per_mp = one;
  interface->get_max_threads_per_block = one;
  interface->is_float16_supported = half::is_wanted() ? yes : no;  // the CPU computes for the card, and lacks most kernels
  interface->is_bfloat16_supported = half::is_wanted() ? yes : no;
  interface->is_dnn_supported = no;
}

}  // namespace sim
