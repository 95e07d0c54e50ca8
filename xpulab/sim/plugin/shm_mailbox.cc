// One step of a transfer: the sender writes to the mailbox, a ring buffer, and the receiver reads from it.
#include <algorithm>

#include "shm_state.h"

namespace sim::shm {

void Group::finish_step(Transfer& transfer, Turns& turns) {
  slot(transfer.message.peer).changed.notify();
  transfer.finished = transfer.transferred == aligned(transfer.bytes);
  if (!transfer.finished) return;
  turns.done.fetch_add(1);
  slot(rank_).changed.notify();
}

bool Group::send_step(Transfer& transfer) {
  const Message& message = transfer.message;
  Turns& turns = outgoing_[message.peer];
  if (turns.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[rank_][message.peer];
  char* ring = mailbox(rank_, message.peer);
  uint64_t written = mail.written.load();
  size_t room = mailbox_bytes_ - (written - mail.read.load());
  const size_t padded_bytes = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && room > 0) {
    const MessageHeader head{message.count, static_cast<uint32_t>(message.type), 0};
    std::memcpy(ring + written % mailbox_bytes_, &head, sizeof head);
    written += sizeof head;
    room -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && room > 0 && transfer.transferred < padded_bytes) {
    const size_t offset = written % mailbox_bytes_;
    const size_t step = std::min({room, padded_bytes - transfer.transferred, mailbox_bytes_ - offset});
    copy(ring + offset, transfer.source(), std::min(step, transfer.bytes - transfer.transferred));
    written += step;
    room -= step;
    transfer.transferred += step;
    moved = true;
  }
  if (!moved) return false;
  mail.written.store(written);
  finish_step(transfer, turns);
  return true;
}

bool Group::receive_step(Transfer& transfer) {
  const Message& message = transfer.message;
  Turns& turns = incoming_[message.peer];
  if (turns.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[message.peer][rank_];
  const char* ring = mailbox(message.peer, rank_);
  uint64_t read = mail.read.load();
  size_t available = mail.written.load() - read;
  const size_t padded_bytes = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && available > 0) {
    MessageHeader head;
    std::memcpy(&head, ring + read % mailbox_bytes_, sizeof head);
    if (head.count != message.count || head.type != static_cast<uint32_t>(message.type)) {
      fail_and_throw("rank " + std::to_string(message.peer) + " called send(" +
                     elements(head.count, static_cast<Type>(head.type)) + ", to rank " + std::to_string(rank_) + "), rank " +
                     std::to_string(rank_) + " called " + text_of(message));
    }
    read += sizeof head;
    available -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && available > 0 && transfer.transferred < padded_bytes) {
    const size_t offset = read % mailbox_bytes_;
    const size_t step = std::min({available, padded_bytes - transfer.transferred, mailbox_bytes_ - offset});
    copy(at(message.data, transfer.transferred), ring + offset, std::min(step, transfer.bytes - transfer.transferred));
    read += step;
    available -= step;
    transfer.transferred += step;
    moved = true;
  }
  if (!moved) return false;
  mail.read.store(read);
  finish_step(transfer, turns);
  return true;
}

}  // namespace sim::shm
