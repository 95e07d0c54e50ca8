// Callbacks that copy: between the host and a card, on a card, from card to card.
#include <cstring>
#include <memory>

#include "card.h"
#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "interface.h"
#include "stream.h"

namespace sim {
namespace {

// A copy between the host and a card, or on it. kind: "h2d", "d2h" or "d2d".
struct Copy {
  const char* kind;
  counters::Counter counter;
  bool to_card, from_card;
};

constexpr Copy kToDevice{"h2d", counters::kBytesToDevice, true, false};
constexpr Copy kToHost{"d2h", counters::kBytesToHost, false, true};
constexpr Copy kOnDevice{"d2d", counters::kBytesOnDevice, true, true};

// Throws sim::Error when the card is lost or an address on it is illegal.
void require(const Copy& copy, const Card& card, const void* to, const void* from, size_t bytes) {
  faults::require_present(card.number);
  if (copy.to_card) card.memory.require(to, bytes);
  if (copy.from_card) card.memory.require(from, bytes);
}

void do_copy(const char* kind, counters::Counter counter, int card, void* to, const void* from, size_t bytes) {
  faults::before("copy", kind, card);
  if (bytes > 0) std::memmove(to, from, bytes);
  faults::after("copy", kind, card, to, bytes);
  counters::add(card, counter, bytes);
}

// A copy that the host waits for. It runs after everything that was queued before, on all streams of the card.
C_Status copy_now(const Copy& copy, C_Device device, void* to, const void* from, size_t bytes) {
  return guarded([&] {
    Card& card = card_number(device->id);
    require(copy, card, to, from, bytes);
    drain(card);
    do_copy(copy.kind, copy.counter, card.number, to, from, bytes);
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

// As on real cards, pageable host memory has been read when the call returns: its owner may change it then.
C_Status async_memory_copy_h2d(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  return guarded([&] {
    const int card = device->id;
    require(kToDevice, card_number(card), dst, src, size);
    if (run_now_if_short(stream, size, [=] { do_copy("h2d", counters::kBytesToDevice, card, dst, src, size); })) return;
    const std::shared_ptr<char[]> staged(new char[size]);
    std::memcpy(staged.get(), src, size);
    enqueue_card_work(stream, size, [=] { do_copy("h2d", counters::kBytesToDevice, card, dst, staged.get(), size); });
  });
}

// As on real cards, a copy to pageable host memory is finished when the call returns.
C_Status async_memory_copy_d2h(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  return guarded([&] {
    require(kToHost, card_number(device->id), dst, src, size);
    wait_for(stream);
    do_copy("d2h", counters::kBytesToHost, device->id, dst, src, size);
  });
}

C_Status async_memory_copy_d2d(const C_Device device, C_Stream stream, void* dst, const void* src, size_t size) {
  return guarded([&] {
    const int card = device->id;
    require(kOnDevice, card_number(card), dst, src, size);
    enqueue_card_work(stream, size, [=] { do_copy("d2d", counters::kBytesOnDevice, card, dst, src, size); });
  });
}

C_Status async_memory_copy_p2p(const C_Device to, const C_Device from, C_Stream stream, void* dst, const void* src,
                               size_t size) {
  return guarded([&] {
    const int card = to->id;
    faults::require_present(card);
    faults::require_present(from->id);
    card_number(card).memory.require(dst, size);
    card_number(from->id).memory.require(src, size);
    enqueue_card_work(stream, size, [=] { do_copy("p2p", counters::kBytesOnDevice, card, dst, src, size); });
  });
}

}  // namespace

void add_copies(C_DeviceInterface* interface) {
  interface->memory_copy_h2d = memory_copy_h2d;
  interface->memory_copy_d2h = memory_copy_d2h;
  interface->memory_copy_d2d = memory_copy_d2d;
  interface->memory_copy_p2p = memory_copy_p2p;
  interface->async_memory_copy_h2d = async_memory_copy_h2d;
  interface->async_memory_copy_d2h = async_memory_copy_d2h;
  interface->async_memory_copy_d2d = async_memory_copy_d2d;
  interface->async_memory_copy_p2p = async_memory_copy_p2p;
}

}  // namespace sim
