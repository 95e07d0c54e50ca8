// Callbacks about streams and events.
#include <string>

#include "card.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "interface.h"
#include "stream.h"

namespace sim {
namespace {

C_Status create_stream(const C_Device device, C_Stream* stream) {
  return guarded([&] { *stream = open_stream(device->id); });
}

C_Status destroy_stream(const C_Device, C_Stream stream) {
  return unless_forked([&] { close_stream(stream); });
}

C_Status query_stream(const C_Device device, C_Stream stream) {
  bool idle = false;
  guarded([&] {
    faults::require_present(device->id);
    idle = is_idle(stream);
  });
  return idle ? C_SUCCESS : C_FAILED;
}

C_Status stream_add_callback(const C_Device device, C_Stream stream, C_Callback callback, void* user_data) {
  const int card = device->id;
  return guarded([&] {
    enqueue(stream, [=] {
      C_Device_st here{card};
      C_Status status = C_SUCCESS;
      callback(&here, stream, user_data, &status);
      if (status != C_SUCCESS) throw Error("a callback on a stream of card " + std::to_string(card) + " failed", status);
    });
  });
}

C_Status create_event(const C_Device, C_Event* event) {
  *event = open_event();
  return C_SUCCESS;
}

C_Status record_event(const C_Device, C_Stream stream, C_Event event) {
  return guarded([&] { record(event, stream); });
}

C_Status destroy_event(const C_Device, C_Event event) {
  close_event(event);
  return C_SUCCESS;
}

C_Status query_event(const C_Device, C_Event event) { return is_forked() || is_reached(event) ? C_SUCCESS : C_FAILED; }

C_Status synchronize_stream(const C_Device device, C_Stream stream) {
  return guarded([&] {
    faults::require_present(device->id);
    wait_for(stream);
  });
}

C_Status synchronize_event(const C_Device, C_Event event) {
  return guarded([&] { wait_for(event); });
}

C_Status stream_wait_event(const C_Device, C_Stream stream, C_Event event) {
  return guarded([&] { wait_for(stream, event); });
}

}  // namespace

void add_streams(C_DeviceInterface* interface) {
  interface->create_stream = create_stream;
  interface->destroy_stream = destroy_stream;
  interface->query_stream = query_stream;
  interface->stream_add_callback = stream_add_callback;
  interface->create_event = create_event;
  interface->record_event = record_event;
  interface->destroy_event = destroy_event;
  interface->query_event = query_event;
  interface->synchronize_stream = synchronize_stream;
  interface->synchronize_event = synchronize_event;
  interface->stream_wait_event = stream_wait_event;
}

}  // namespace sim
