// See collectives.h.
#include "collectives.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "counters.h"
#include "error.h"
#include "faults.h"
#include "stream.h"

namespace sim {
namespace {

using shm::Group;
using shm::Message;

// Something that the other ranks count on. When it fails, or is dropped because its stream had failed before, they are told.
class Promise {
 public:
  Promise(std::shared_ptr<Group> group, std::string what) : group_(std::move(group)), what_(std::move(what)) {}
  Promise(const Promise&) = delete;
  ~Promise() {
    if (!kept_) {
      group_->fail("rank " + std::to_string(group_->rank()) + " never did " + what_ + ": its stream had failed before");
    }
  }

  template <typename Body>
  void keep(Body body) {
    kept_ = true;
    try {
      body();
    } catch (const Error& error) {  // an injected fault, a lost card
      group_->fail("rank " + std::to_string(group_->rank()) + " gave up in " + what_ + ": " + error.what());
      throw;
    } catch (const std::exception& error) {
      group_->fail("rank " + std::to_string(group_->rank()) + " gave up in " + what_ + ": " + error.what());
      throw Error(error.what());
    }
  }

 private:
  const std::shared_ptr<Group> group_;
  const std::string what_;
  bool kept_ = false;
};

const char* kind_of(const Message& message) { return message.outgoing ? "send" : "recv"; }
size_t bytes_of(const Message& message) { return message.count * reduce::size_of(message.type); }

// Turns are taken and queued under one lock: on a stream, what has an earlier turn must not stand behind a later one.
std::mutex asking;

void queue(const Collective& asked) {
  const int card = card_of(asked.stream);
  faults::require_present(card);
  const std::shared_ptr<Group> group = asked.comm->group;
  const auto promise = std::make_shared<Promise>(group, asked.kind);
  const std::lock_guard<std::mutex> lock(asking);
  const uint64_t turn = group->post();
  enqueue(asked.stream,
          [card, group, promise, turn, kind = asked.kind, result = asked.result, bytes = asked.bytes, body = asked.body] {
            promise->keep([&] {
              faults::before("collective", kind, card, result, bytes);
              body(*group, turn);
              faults::after("collective", kind, card, result, bytes);
              counters::collective(card, kind, bytes);
            });
          });
}

// Does messages of one communicator together. A bit of what is sent is flipped on its way, not where it lies.
void exchange(Group& group, int card, std::vector<Message> messages) {
  std::vector<std::vector<char>> spoilt(messages.size());
  for (size_t each = 0; each < messages.size(); ++each) {
    Message& message = messages[each];
    faults::before("collective", kind_of(message), card, message.data, bytes_of(message));
    if (!message.outgoing || !faults::any() || message.count == 0) continue;
    const char* data = static_cast<const char*>(message.data);
    spoilt[each].assign(data, data + bytes_of(message));
    faults::after("collective", "send", card, spoilt[each].data(), spoilt[each].size());
    message.data = spoilt[each].data();
  }
  group.exchange(messages);
  for (const Message& message : messages) {
    if (!message.outgoing) faults::after("collective", "recv", card, message.data, bytes_of(message));
    counters::collective(card, kind_of(message), bytes_of(message));
  }
}

// One stream's messages, of any communicators: all of them proceed together.
void queue(C_Stream stream, const std::vector<Letter>& letters) {
  struct Batch {
    std::shared_ptr<Group> group;
    std::shared_ptr<Promise> promise;
    std::vector<Message> messages;
  };
  const int card = card_of(stream);
  faults::require_present(card);
  std::vector<Batch> batches;
  for (const Letter& letter : letters) {
    const std::shared_ptr<Group> group = letter.comm->group;
    auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& known) { return known.group == group; });
    if (batch == batches.end()) {
      batches.push_back({group, nullptr, {}});
      batch = std::prev(batches.end());
    }
    batch->messages.push_back(letter.message);
  }
  const std::lock_guard<std::mutex> lock(asking);
  for (Batch& batch : batches) {
    batch.group->post(batch.messages);
    batch.promise = std::make_shared<Promise>(batch.group, kind_of(batch.messages[0]));
  }
  enqueue(stream, [card, batches] {
    const auto work = [card](const Batch& batch) {
      batch.promise->keep([&] { exchange(*batch.group, card, batch.messages); });
    };
    if (batches.size() == 1) return work(batches[0]);
    std::vector<std::future<void>> others;
    for (const Batch& batch : batches) others.push_back(std::async(std::launch::async, work, std::cref(batch)));
    for (std::future<void>& other : others) other.wait();
    for (std::future<void>& other : others) other.get();
  });
}

// Between group_start and group_end a thread only collects what it is asked for; then all of it happens together.
thread_local int depth = 0;
thread_local std::vector<Letter> letters;
thread_local std::vector<Collective> collectives;

}  // namespace

void ask(const Letter& letter) {
  if (depth > 0) {
    letters.push_back(letter);
  } else {
    queue(letter.stream, {letter});
  }
}

void ask(Collective collective) {
  if (depth > 0) {
    collectives.push_back(std::move(collective));
  } else {
    queue(collective);
  }
}

bool is_collecting() { return depth > 0; }

void begin_calls() { ++depth; }

void end_calls() {
  if (--depth > 0) return;
  const std::vector<Letter> sent = std::exchange(letters, {});
  std::vector<Collective> others = std::exchange(collectives, {});
  std::vector<C_Stream> streams;
  for (const Letter& letter : sent) {
    if (std::find(streams.begin(), streams.end(), letter.stream) == streams.end()) streams.push_back(letter.stream);
  }
  for (C_Stream stream : streams) {
    std::vector<Letter> here;
    std::copy_if(sent.begin(), sent.end(), std::back_inserter(here),
                 [&](const Letter& letter) { return letter.stream == stream; });
    queue(stream, here);
  }
  // Ranks may have asked in different orders: communicators are served in the order of their ids, everywhere the same.
  std::stable_sort(others.begin(), others.end(),
                   [](const Collective& a, const Collective& b) { return a.comm->group->id() < b.comm->group->id(); });
  for (const Collective& other : others) queue(other);
}

}  // namespace sim
