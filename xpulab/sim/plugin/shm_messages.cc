// Sending and receiving: messages proceed together; what does not fit a mailbox is delivered by a thread.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shm_state.h"

namespace sim::shm {

void Group::post(std::vector<Message>& messages) {
  const std::lock_guard<std::mutex> lock(posting_);
  for (Message& message : messages) {
    current = text_of(message);
    check(message.type, message.peer);
    message.turn = (message.outgoing ? outgoing_ : incoming_)[message.peer].posted++;
  }
}

void Group::exchange(const std::vector<Message>& messages) {
  if (messages.empty()) return;
  current = text_of(messages[0]);
  for (size_t other = 1; other < messages.size() && other < 4; ++other) current += " + " + text_of(messages[other]);
  if (messages.size() > 4) current += " and " + std::to_string(messages.size() - 4) + " more";
  stop_if_failed();
  doing(current);
  std::list<Transfer> transfers;
  for (const Message& message : messages) {
    transfers.push_back({message, message.count * reduce::size_of(message.type), 0, false, false, {}, 0});
  }
  const auto progress = [&] {
    bool any = false;
    for (Transfer& transfer : transfers) {
      if (!transfer.finished) any = (transfer.message.outgoing ? step_out(transfer) : step_in(transfer)) || any;
    }
    return any;
  };
  const auto expected = [](const Transfer& transfer) { return !transfer.finished && !transfer.message.outgoing; };
  const auto senders = [&] {
    Awaited awaited;
    for (const Transfer& transfer : transfers) {
      if (!expected(transfer)) continue;
      const auto known = std::find(awaited.ranks.begin(), awaited.ranks.end(), transfer.message.peer);
      if (known == awaited.ranks.end()) awaited.ranks.push_back(transfer.message.peer);
      awaited.others += text_of(transfer.message) + ": " + std::to_string(std::min(transfer.passed, transfer.bytes)) + " of " +
                        std::to_string(transfer.bytes) + " bytes have come. ";
    }
    return awaited;
  };
  progress();
  while (std::any_of(transfers.begin(), transfers.end(), expected)) wait(slot(rank_).bell, progress, senders);
  for (Transfer& transfer : transfers) {
    if (!transfer.finished) hand_over(transfer);
  }
  doing("finished " + current);
}

// Copies what is left, and leaves it to the carrier. A message of an earlier turn which the carrier has keeps its place:
// this one's turn comes after it.
void Group::hand_over(Transfer& transfer) {
  transfer.rest_from = transfer.passed;
  transfer.rest.resize(aligned(transfer.bytes) - transfer.passed + kAlignment);  // never empty
  copy(transfer.rest.data(), at(static_cast<const void*>(transfer.message.data), transfer.passed),
       transfer.bytes - std::min(transfer.bytes, transfer.passed));
  const std::lock_guard<std::mutex> lock(carrying_);
  undelivered_.fetch_add(1);
  to_carry_.push_back(std::move(transfer));
  if (!carrier_.joinable()) carrier_ = std::thread([this] { carry(); });
  slot(rank_).bell.ring();
}

// It may wait as long as the receiver likes, since nobody waits for it: only a receiver that is gone ends it.
void Group::carry() {
  std::list<Transfer> carried;
  Bell& bell = slot(rank_).bell;
  while (true) {
    const uint32_t seen = bell.count.load();
    if (closing_.load()) return;
    {
      const std::lock_guard<std::mutex> lock(carrying_);
      carried.splice(carried.end(), to_carry_);
    }
    bool any = false;
    for (auto transfer = carried.begin(); transfer != carried.end();) {
      any = step_out(*transfer) || any;
      const bool finished = transfer->finished;
      const bool useless = !any && !finished && ended(transfer->message.peer);
      if (useless) {
        fail(text_of(transfer->message) + " on communicator " + name_.brief() + ", rank " + std::to_string(rank_) + " of " +
             std::to_string(ranks_) + ": not received; " + describe(transfer->message.peer));
      }
      if (finished || useless || header_->failed.load() == 2) {
        transfer = carried.erase(transfer);
        undelivered_.fetch_sub(1);
      } else {
        ++transfer;
      }
    }
    if (any) continue;
    // With nothing to deliver only the bell can bring something; else a receiver may end without ringing it.
    bell.sleep(seen, carried.empty() ? std::chrono::milliseconds(60000) : kSlice);
  }
}

bool Group::deliver() {
  if (::getpid() != owner_) return true;
  const Clock::time_point until = Clock::now() + limit_;
  Bell& bell = slot(rank_).bell;
  while (is_delivering() && Clock::now() < until) {
    const uint32_t seen = bell.count.load();
    if (is_delivering()) bell.sleep(seen, std::chrono::milliseconds(20));
  }
  return !is_delivering();
}

}  // namespace sim::shm
