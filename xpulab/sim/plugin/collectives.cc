// See collectives.h.
#include "collectives.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "faults.h"
#include "stream.h"

namespace sim {
namespace {

using shm::Group;
using shm::Message;

// Work that other ranks wait for. When it fails, or never runs because its stream had failed before, the communicator fails
// on all ranks.
class GroupGuard {
 public:
  GroupGuard(std::shared_ptr<Group> group, std::string what) : group_(std::move(group)), what_(std::move(what)) {}
  GroupGuard(const GroupGuard&) = delete;
  ~GroupGuard() {
    if (!started_) {
      group_->fail("rank " + std::to_string(group_->rank()) + " did not run " + what_ + ": its stream had failed before");
    }
  }

  template <typename Body>
  void run(Body body) {
    started_ = true;
    try {
      body();
    } catch (const Error& error) {  // an injected fault, a lost card
      group_->fail("rank " + std::to_string(group_->rank()) + " failed in " + what_ + ": " + error.what());
      throw;
    } catch (const std::exception& error) {
      group_->fail("rank " + std::to_string(group_->rank()) + " failed in " + what_ + ": " + error.what());
      throw Error(error.what());
    }
  }

 private:
  const std::shared_ptr<Group> group_;
  const std::string what_;
  bool started_ = false;
};

const char* kind_of(const Message& message) { return message.outgoing ? "send" : "recv"; }
size_t bytes_of(const Message& message) { return message.count * reduce::size_of(message.type); }

// Taking a turn and queueing are one step: on a stream, an earlier turn must not be queued after a later one.
std::mutex queueing;

void queue(const PendingCollective& call) {
  const int card = card_of(call.stream);
  faults::require_present(card);
  const std::shared_ptr<Group> group = call.comm->group;
  const auto guard = std::make_shared<GroupGuard>(group, call.kind);
  const std::lock_guard<std::mutex> lock(queueing);
  const uint64_t turn = group->post();
  enqueue(call.stream,
          [card, group, guard, turn, kind = call.kind, result = call.result, bytes = call.bytes, body = call.body] {
            guard->run([&] {
              faults::before("collective", kind, card);
              body(*group, turn);
              faults::after("collective", kind, card, result, bytes);
            });
          });
}

// Transfers messages of one communicator. A fault flips a bit in a copy of what is sent, not in the sender's buffer.
void exchange(Group& group, int card, std::vector<Message> messages) {
  std::vector<std::vector<char>> altered(messages.size());
  for (size_t each = 0; each < messages.size(); ++each) {
    Message& message = messages[each];
    faults::before("collective", kind_of(message), card);
    if (!message.outgoing || !faults::any() || message.count == 0) continue;
    const char* data = static_cast<const char*>(message.data);
    altered[each].assign(data, data + bytes_of(message));
    faults::after("collective", "send", card, altered[each].data(), altered[each].size());
    message.data = altered[each].data();
  }
  group.exchange(messages);
  for (const Message& message : messages) {
    if (!message.outgoing) faults::after("collective", "recv", card, message.data, bytes_of(message));
  }
}

// Queues messages of one stream, of any communicators; they are transferred concurrently.
void queue(C_Stream stream, const std::vector<PendingMessage>& messages) {
  struct Batch {
    std::shared_ptr<Group> group;
    std::shared_ptr<GroupGuard> guard;
    std::vector<Message> messages;
  };
  const int card = card_of(stream);
  faults::require_present(card);
  std::vector<Batch> batches;
  for (const PendingMessage& pending : messages) {
    const std::shared_ptr<Group> group = pending.comm->group;
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& known) { return known.group == group; });
    if (batch == batches.end()) {
      batches.push_back({group, nullptr, {}});
      batch = std::prev(batches.end());
    }
    batch->messages.push_back(pending.message);
  }
  const std::lock_guard<std::mutex> lock(queueing);
  for (Batch& batch : batches) {
    batch.group->post(batch.messages);
    batch.guard = std::make_shared<GroupGuard>(batch.group, kind_of(batch.messages[0]));
  }
  enqueue(stream, [card, batches] {
    const auto work = [card](const Batch& batch) { batch.guard->run([&] { exchange(*batch.group, card, batch.messages); }); };
    if (batches.size() == 1) return work(batches[0]);
    std::vector<std::future<void>> others;
    for (const Batch& batch : batches) others.push_back(std::async(std::launch::async, work, std::cref(batch)));
    for (std::future<void>& other : others) other.wait();
    for (std::future<void>& other : others) other.get();
  });
}

// The open group of this thread.
thread_local int depth = 0;
thread_local std::vector<PendingMessage> pending_messages;
thread_local std::vector<PendingCollective> pending_collectives;

}  // namespace

void submit(const PendingMessage& pending) {
  if (depth > 0) {
    pending_messages.push_back(pending);
  } else {
    queue(pending.stream, {pending});
  }
}

void submit(PendingCollective collective) {
  if (depth > 0) {
    pending_collectives.push_back(std::move(collective));
  } else {
    queue(collective);
  }
}

bool in_group() { return depth > 0; }

void begin_group() { ++depth; }

void end_group() {
  if (--depth > 0) return;
  const std::vector<PendingMessage> sent = std::exchange(pending_messages, {});
  std::vector<PendingCollective> others = std::exchange(pending_collectives, {});
  std::vector<C_Stream> streams;
  for (const PendingMessage& pending : sent) {
    if (std::find(streams.begin(), streams.end(), pending.stream) == streams.end()) streams.push_back(pending.stream);
  }
  for (C_Stream stream : streams) {
    std::vector<PendingMessage> here;
    std::copy_if(sent.begin(), sent.end(), std::back_inserter(here),
                 [&](const PendingMessage& pending) { return pending.stream == stream; });
    queue(stream, here);
  }
  // Ranks may submit in different orders. Sorting by the id of the communicator gives the same order on all ranks.
  std::stable_sort(others.begin(), others.end(), [](const PendingCollective& a, const PendingCollective& b) {
    return a.comm->group->id() < b.comm->group->id();
  });
  for (const PendingCollective& other : others) queue(other);
}

}  // namespace sim
