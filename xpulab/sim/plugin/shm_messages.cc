// Sending and receiving messages; a thread delivers what does not fit a mailbox.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shm_state.h"

namespace sim::shm {
namespace {

constexpr std::chrono::milliseconds kIdleWait{60000}, kDeliveryWait{20};
constexpr size_t kMessagesShown = 4;  // in the text of a call

}  // namespace

void Group::post(std::vector<Message>& messages) {
  const std::lock_guard<std::mutex> lock(posting_mutex_);
  for (Message& message : messages) {
    current_call = text_of(message);
    check(message.type, message.peer);
    message.turn = (message.outgoing ? outgoing_ : incoming_)[message.peer].posted++;
  }
}

void Group::exchange(const std::vector<Message>& messages) {
  if (messages.empty()) return;
  current_call = text_of(messages[0]);
  for (size_t other = 1; other < std::min(messages.size(), kMessagesShown); ++other)
    current_call += " + " + text_of(messages[other]);
  if (messages.size() > kMessagesShown) current_call += " and " + std::to_string(messages.size() - kMessagesShown) + " more";
  throw_if_failed();
  set_activity(current_call);
  std::list<Transfer> transfers;
  for (const Message& message : messages) {
    transfers.push_back({message, message.count * reduce::size_of(message.type), 0, false, false, {}, 0});
  }
  const auto progress = [&] {
    bool any = false;
    for (Transfer& transfer : transfers) {
      if (!transfer.finished) any = (transfer.message.outgoing ? send_step(transfer) : receive_step(transfer)) || any;
    }
    return any;
  };
  const auto expected = [](const Transfer& transfer) { return !transfer.finished && !transfer.message.outgoing; };
  const auto senders = [&] {
    Missing missing;
    for (const Transfer& transfer : transfers) {
      if (!expected(transfer)) continue;
      const auto known = std::find(missing.ranks.begin(), missing.ranks.end(), transfer.message.peer);
      if (known == missing.ranks.end()) missing.ranks.push_back(transfer.message.peer);
      missing.details += text_of(transfer.message) + ": " + std::to_string(std::min(transfer.transferred, transfer.bytes)) +
                         " of " + std::to_string(transfer.bytes) + " bytes received. ";
    }
    return missing;
  };
  progress();
  while (std::any_of(transfers.begin(), transfers.end(), expected)) wait(slot(rank_).changed, progress, senders);
  for (Transfer& transfer : transfers) {
    if (!transfer.finished) deliver_later(transfer);
  }
  set_activity("finished " + current_call);
}

// Copies the rest of a message for the delivery thread. Turns keep the order: an earlier message to the same rank that
// this thread still has is delivered first.
void Group::deliver_later(Transfer& transfer) {
  transfer.copied_from = transfer.transferred;
  transfer.copied.resize(aligned(transfer.bytes) - transfer.transferred + kAlignment);  // never empty
  copy(transfer.copied.data(), at(static_cast<const void*>(transfer.message.data), transfer.transferred),
       transfer.bytes - std::min(transfer.bytes, transfer.transferred));
  const std::lock_guard<std::mutex> lock(delivery_mutex_);
  undelivered_.fetch_add(1);
  to_deliver_.push_back(std::move(transfer));
  if (!delivery_thread_.joinable()) delivery_thread_ = std::thread([this] { deliver_copied(); });
  slot(rank_).changed.notify();
}

// The delivery thread. It has no timeout, since no call waits for it: it gives up when the receiver has ended.
void Group::deliver_copied() {
  std::list<Transfer> delivering;
  Notifier& changed = slot(rank_).changed;
  while (true) {
    const uint32_t seen = changed.count.load();
    if (leaving_.load()) return;
    {
      const std::lock_guard<std::mutex> lock(delivery_mutex_);
      delivering.splice(delivering.end(), to_deliver_);
    }
    bool any = false;
    for (auto transfer = delivering.begin(); transfer != delivering.end();) {
      any = send_step(*transfer) || any;
      const bool finished = transfer->finished;
      const bool lost = !any && !finished && has_ended(transfer->message.peer);
      if (lost) {
        fail(text_of(transfer->message) + " on communicator " + name_.brief() + ", rank " + std::to_string(rank_) + " of " +
             std::to_string(ranks_) + ": not received; " + describe(transfer->message.peer));
      }
      if (finished || lost || header_->failed.load() == 2) {
        transfer = delivering.erase(transfer);
        undelivered_.fetch_sub(1);
      } else {
        ++transfer;
      }
    }
    if (any) continue;
    // A receiver may end without notifying: check for it while there is something to deliver.
    changed.wait(seen, delivering.empty() ? kIdleWait : kCheckInterval);
  }
}

bool Group::deliver() {
  if (::getpid() != owner_) return true;
  const Clock::time_point until = Clock::now() + timeout_;
  Notifier& changed = slot(rank_).changed;
  while (is_delivering() && Clock::now() < until) {
    const uint32_t seen = changed.count.load();
    if (is_delivering()) changed.wait(seen, kDeliveryWait);
  }
  return !is_delivering();
}

}  // namespace sim::shm
