// One step of a message through its mailbox: a ring of bytes that the sender fills and the receiver empties.
#include <algorithm>

#include "shm_state.h"

namespace sim::shm {

void Group::has_moved(Transfer& transfer, Lane& lane) {
  slot(transfer.message.peer).bell.ring();
  transfer.finished = transfer.passed == aligned(transfer.bytes);
  if (!transfer.finished) return;
  lane.done.fetch_add(1);
  slot(rank_).bell.ring();
}

bool Group::step_out(Transfer& transfer) {
  const Message& message = transfer.message;
  Lane& lane = outgoing_[message.peer];
  if (lane.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[rank_][message.peer];
  char* ring = mailbox(rank_, message.peer);
  uint64_t written = mail.written.load();
  size_t room = mail_ - (written - mail.read.load());
  const size_t whole = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && room > 0) {
    const Head head{message.count, static_cast<uint32_t>(message.type), 0};
    std::memcpy(ring + written % mail_, &head, sizeof head);
    written += sizeof head;
    room -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && room > 0 && transfer.passed < whole) {
    const size_t offset = written % mail_;
    const size_t now = std::min({room, whole - transfer.passed, mail_ - offset});
    copy(ring + offset, transfer.source(), std::min(now, transfer.bytes - transfer.passed));
    written += now;
    room -= now;
    transfer.passed += now;
    moved = true;
  }
  if (!moved) return false;
  mail.written.store(written);
  has_moved(transfer, lane);
  return true;
}

bool Group::step_in(Transfer& transfer) {
  const Message& message = transfer.message;
  Lane& lane = incoming_[message.peer];
  if (lane.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[message.peer][rank_];
  const char* ring = mailbox(message.peer, rank_);
  uint64_t read = mail.read.load();
  size_t there = mail.written.load() - read;
  const size_t whole = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && there > 0) {
    Head head;
    std::memcpy(&head, ring + read % mail_, sizeof head);
    if (head.count != message.count || head.type != static_cast<uint32_t>(message.type)) {
      refuse("rank " + std::to_string(message.peer) + " called send(" + elements(head.count, static_cast<Type>(head.type)) +
             ", to rank " + std::to_string(rank_) + "), rank " + std::to_string(rank_) + " called " + text_of(message));
    }
    read += sizeof head;
    there -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && there > 0 && transfer.passed < whole) {
    const size_t offset = read % mail_;
    const size_t now = std::min({there, whole - transfer.passed, mail_ - offset});
    copy(at(message.data, transfer.passed), ring + offset, std::min(now, transfer.bytes - transfer.passed));
    read += now;
    there -= now;
    transfer.passed += now;
    moved = true;
  }
  if (!moved) return false;
  mail.read.store(read);
  has_moved(transfer, lane);
  return true;
}

}  // namespace sim::shm
