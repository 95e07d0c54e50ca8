// What Paddle calls: its interface for devices that it does not know (paddle/phi/backends/device_ext.h).

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "card.h"
#include "collectives.h"
#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "settings.h"
#include "stream.h"
#include "wheel.h"

namespace sim {
namespace {

// None of these is ever destroyed: threads of streams may outlive main().
std::mutex& reporting = *new std::mutex;
std::string& last_error = *new std::string;

thread_local int current_card = 0;

// Host memory that was allocated for this device, which it may read and write while the host goes on.
std::mutex& pinning = *new std::mutex;
std::map<char*, size_t>& pinned = *new std::map<char*, size_t>;

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> lock(pinning);
  auto after = pinned.upper_bound(static_cast<char*>(const_cast<void*>(data)));
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const char*>(data) < after->first + after->second;
}

// A copy between the host and a card, or on it. kind: "h2d", "d2h" or "d2d".
struct Copy {
  const char* kind;
  counters::Counter counter;
  bool to_card, from_card;
};

constexpr Copy kToDevice{"h2d", counters::kBytesToDevice, true, false};
constexpr Copy kToHost{"d2h", counters::kBytesToHost, false, true};
constexpr Copy kOnDevice{"d2d", counters::kBytesOnDevice, true, true};

// Throws sim::Error when the card is gone, or an address on it is none.
void require(const Copy& copy, const Card& card, const void* to, const void* from, size_t bytes) {
  faults::require_present(card.number);
  if (copy.to_card) card.memory.require(to, bytes);
  if (copy.from_card) card.memory.require(from, bytes);
}

void do_copy(const char* kind, counters::Counter counter, int card, void* to, const void* from, size_t bytes) {
  faults::before("copy", kind, card, to, bytes);
  if (bytes > 0) std::memmove(to, from, bytes);
  faults::after("copy", kind, card, to, bytes);
  counters::add(card, counter, bytes);
}

// A copy that the host waits for: all that was asked of the card before, on whichever stream, is done first.
C_Status copy_now(const Copy& copy, C_Device device, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    Card& card = card_number(device->id);
    require(copy, card, to, from, bytes);
    drain(card);
    do_copy(copy.kind, copy.counter, card.number, to, from, bytes);
  });
}

C_Status copy_later(const Copy& copy, C_Device device, C_Stream stream, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    const int card = device->id;
    require(copy, card_number(card), to, from, bytes);
    enqueue_own(stream, bytes, [=] { do_copy(copy.kind, copy.counter, card, to, from, bytes); });
  });
}

// For what Paddle calls from destructors: a child of a process that had used the card lets everything be.
template <typename Body>
C_Status quietly(Body body) noexcept {
  return is_forked() ? C_SUCCESS : unthrown(body);
}

C_Status initialize() {
  return guarded([] {
    settings();
    const char* text = std::getenv("XPULAB_SIM_FAULTS");
    faults::set(text ? text : "");
    std::atexit(stop_all);
    keep_stream_wrappers();
    share_random_state(settings().cards);
  });
}

C_Status finalize() { return C_SUCCESS; }

C_Status init_device(const C_Device device) {
  return guarded([&] { card_number(device->id); });
}

C_Status set_device(const C_Device device) {
  if (is_forked()) return C_SUCCESS;  // at the end of a child Paddle calls it from destructors
  return guarded([&] {
    current_card = card_number(device->id).number;  // also of a lost card: Paddle calls this from destructors
  });
}

C_Status get_device(const C_Device device) {
  device->id = current_card;
  return C_SUCCESS;
}

C_Status deinit_device(const C_Device) { return C_SUCCESS; }

C_Status create_stream(const C_Device device, C_Stream* stream) {
  return guarded([&] { *stream = open_stream(device->id); });
}

C_Status destroy_stream(const C_Device, C_Stream stream) {
  return quietly([&] { close_stream(stream); });
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

C_Status query_event(const C_Device, C_Event event) { return is_forked() || has_come(event) ? C_SUCCESS : C_FAILED; }

C_Status synchronize_device(const C_Device device) {
  return guarded([&] {
    faults::require_present(device->id);
    drain(card_number(device->id));
  });
}

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

void count_memory(const Card& card) {
  const size_t used = card.memory.used();
  counters::set(card.number, counters::kAllocatedBytes, used);
  counters::raise_to(card.number, counters::kPeakBytes, used);
}

// Without room *ptr is nullptr and that is no error: Paddle then frees what it keeps for later, tries again, and says
// itself that the device is out of memory.
C_Status device_memory_allocate(const C_Device device, void** ptr, size_t size) {
  return guarded([&] {
    Card& card = card_number(device->id);
    faults::require_present(card.number);
    faults::before("alloc", "alloc", card.number, nullptr, size);
    *ptr = card.memory.allocate(size);
    if (*ptr == nullptr) return;
    counters::add(card.number, counters::kAllocations, 1);
    count_memory(card);
  });
}

C_Status device_memory_deallocate(const C_Device device, void* ptr, size_t) {
  return quietly([&] {
    Card& card = card_number(device->id);
    try {
      drain(card);  // what is queued may still use it
    } catch (const Error&) {
      // The stream tells whoever waits for it. Nothing more is done on it, so that nothing uses this memory.
    }
    card.memory.release(ptr);
    counters::add(card.number, counters::kFrees, 1);
    count_memory(card);
  });
}

C_Status device_memory_set(const C_Device device, void* ptr, unsigned char value, size_t size) {
  return guarded([&] {
    Card& card = card_number(device->id);
    faults::require_present(card.number);
    card.memory.require(ptr, size);
    drain(card);
    faults::before("copy", "set", card.number, ptr, size);
    std::memset(ptr, value, size);
    faults::after("copy", "set", card.number, ptr, size);
  });
}

C_Status host_memory_allocate(const C_Device, void** ptr, size_t size) {
  *ptr = std::malloc(size);
  if (*ptr == nullptr) return C_FAILED;
  std::lock_guard<std::mutex> lock(pinning);
  pinned.emplace(static_cast<char*>(*ptr), size);
  return C_SUCCESS;
}

C_Status host_memory_deallocate(const C_Device device, void* ptr, size_t) {
  return quietly([&] {
    try {
      drain(card_number(device->id));
    } catch (const Error&) {  // as in device_memory_deallocate
    }
    std::lock_guard<std::mutex> lock(pinning);
    pinned.erase(static_cast<char*>(ptr));
    std::free(ptr);
  });
}

C_Status memory_copy_h2d(const C_Device device, void* dst, const void* src, size_t size) {
  return copy_now(kToDevice, device, dst, src, size);
}

C_Status memory_copy_d2h(const C_Device device, void* dst, const void* src, size_t size) {
  return copy_now(kToHost, device, dst, src, size);
}

C_Status memory_copy_d2d(const C_Device device, void* dst, const void* src, size_t size) {
  return copy_now(kOnDevice, device, dst, src, size);
}

C_Status memory_copy_p2p(const C_Device to, const C_Device from, void* dst, const void* src, size_t size) {
  return guarded([&] {
    Card &target = card_number(to->id), &source = card_number(from->id);
    faults::require_present(target.number);
    faults::require_present(source.number);
    target.memory.require(dst, size);
    source.memory.require(src, size);
    drain(source);
    drain(target);
    do_copy("p2p", counters::kBytesOnDevice, target.number, dst, src, size);
  });
}

// As on cards: pageable host memory has been read when the call returns, since its owner may change it then.
C_Status async_memory_copy_h2d(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  if (is_pinned(src)) return copy_later(kToDevice, device, stream, dst, src, size);
  return guarded([&] {
    const int card = device->id;
    require(kToDevice, card_number(card), dst, src, size);
    if (done_at_once(stream, size, [=] { do_copy("h2d", counters::kBytesToDevice, card, dst, src, size); })) return;
    const std::shared_ptr<char[]> staged(new char[size]);
    std::memcpy(staged.get(), src, size);
    enqueue_own(stream, size, [=] { do_copy("h2d", counters::kBytesToDevice, card, dst, staged.get(), size); });
  });
}

// As on cards: a copy to pageable host memory has been done when the call returns.
C_Status async_memory_copy_d2h(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  if (is_pinned(dst)) return copy_later(kToHost, device, stream, dst, src, size);
  return guarded([&] {
    require(kToHost, card_number(device->id), dst, src, size);
    wait_for(stream);
    do_copy("d2h", counters::kBytesToHost, device->id, dst, src, size);
  });
}

C_Status async_memory_copy_d2d(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  return copy_later(kOnDevice, device, stream, dst, src, size);
}

C_Status async_memory_copy_p2p(const C_Device to, const C_Device from, C_Stream stream, void* dst, const void* src,
                               size_t size) {
  return guarded([&] {
    const int card = to->id;
    faults::require_present(card);
    faults::require_present(from->id);
    card_number(card).memory.require(dst, size);
    card_number(from->id).memory.require(src, size);
    enqueue_own(stream, size, [=] { do_copy("p2p", counters::kBytesOnDevice, card, dst, src, size); });
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

C_Status one(const C_Device, size_t* value) {
  *value = 1;
  return C_SUCCESS;
}

C_Status no(const C_Device, bool* supported) {
  *supported = false;
  return C_SUCCESS;
}

}  // namespace

void report(const std::string& message) {
  std::lock_guard<std::mutex> lock(reporting);
  last_error = message;
  std::fprintf(stderr, "xpulab sim: %s\n", message.c_str());
  std::fflush(stderr);
}

}  // namespace sim

extern "C" {

void InitPlugin(CustomRuntimeParams* params) {
  using namespace sim;
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  params->device_type = const_cast<char*>("sim");
  params->sub_device_type = const_cast<char*>("v1");
  C_DeviceInterface* interface = params->interface;
  std::memset(static_cast<void*>(interface), 0, sizeof(C_DeviceInterface));
  interface->size = sizeof(C_DeviceInterface);

  interface->initialize = initialize;
  interface->finalize = finalize;
  interface->init_device = init_device;
  interface->set_device = set_device;
  interface->get_device = get_device;
  interface->deinit_device = deinit_device;
  interface->create_stream = create_stream;
  interface->destroy_stream = destroy_stream;
  interface->query_stream = query_stream;
  interface->stream_add_callback = stream_add_callback;
  interface->create_event = create_event;
  interface->record_event = record_event;
  interface->destroy_event = destroy_event;
  interface->query_event = query_event;
  interface->synchronize_device = synchronize_device;
  interface->synchronize_stream = synchronize_stream;
  interface->synchronize_event = synchronize_event;
  interface->stream_wait_event = stream_wait_event;

  interface->device_memory_allocate = device_memory_allocate;
  interface->device_memory_deallocate = device_memory_deallocate;
  interface->device_memory_set = device_memory_set;
  interface->host_memory_allocate = host_memory_allocate;
  interface->host_memory_deallocate = host_memory_deallocate;
  interface->memory_copy_h2d = memory_copy_h2d;
  interface->memory_copy_d2h = memory_copy_d2h;
  interface->memory_copy_d2d = memory_copy_d2d;
  interface->memory_copy_p2p = memory_copy_p2p;
  interface->async_memory_copy_h2d = async_memory_copy_h2d;
  interface->async_memory_copy_d2h = async_memory_copy_d2h;
  interface->async_memory_copy_d2d = async_memory_copy_d2d;
  interface->async_memory_copy_p2p = async_memory_copy_p2p;

  interface->get_device_count = get_device_count;
  interface->get_device_list = get_device_list;
  interface->device_memory_stats = device_memory_stats;
  interface->device_min_chunk_size = device_min_chunk_size;
  interface->device_max_chunk_size = all_memory;
  interface->device_max_alloc_size = all_memory;
  interface->device_extra_padding_size = none;
  interface->get_compute_capability = none;
  interface->get_multi_process = one;
  interface->get_max_threads_per_mp = one;
  interface->get_max_threads_per_block = one;
  interface->is_float16_supported = no;  // the CPU, which computes for the card, lacks most kernels for it
  interface->is_bfloat16_supported = no;
  interface->is_dnn_supported = no;

  add_collectives(interface);
}

// For xpulab.sim, through ctypes. A text stays valid until the next call.

// 0 when the faults are in force, and streams that had failed work again; else xpulab_sim_last_error says why.
int xpulab_sim_set_faults(const char* text) {
  return sim::unthrown([&] {
    sim::faults::set(text);
    sim::forgive_all();
  });
}

unsigned long long xpulab_sim_counter(int card, int counter) {
  if (card < 0 || card >= sim::kMostCards || counter < 0 || counter >= sim::counters::kCount) return 0;
  return sim::counters::read(card, counter);
}

const char* xpulab_sim_last_error() {
  static auto& shown = *new std::string;
  std::lock_guard<std::mutex> lock(sim::reporting);
  shown = sim::last_error;
  return shown.c_str();
}

}  // extern "C"
