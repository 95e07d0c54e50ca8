// See collectives.h. Collectives are queued on the stream that Paddle names, and done by shm_group on its thread.
#include "collectives.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "counters.h"
#include "error.h"
#include "faults.h"
#include "settings.h"
#include "shm_group.h"
#include "stream.h"

struct C_CCLComm_st {
  std::shared_ptr<sim::shm::Group> group;  // queued work may outlive the communicator
};

namespace sim {
namespace {

using shm::Group;
using shm::Message;
using shm::Op;
using shm::Type;

constexpr size_t kIdBytes = 128;  // Paddle's buffer for the name of a communicator has as many

Type type_of(C_DataType type) { return static_cast<Type>(type); }
Op op_of(C_CCLReduceOp op) { return static_cast<Op>(op); }

double seconds_to_wait() { return static_cast<double>(settings().patience.count()) / 1000.0; }

// ---- what is queued ------------------------------------------------------------------------------------------------

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

// A collective as it was asked for. result: where what comes out will be, for faults to flip a bit of.
struct Collective {
  const char* kind;
  C_CCLComm comm;
  C_Stream stream;
  void* result;
  size_t bytes;
  std::function<void(Group& group, uint64_t turn)> body;
};

// A message as it was asked for.
struct Letter {
  C_CCLComm comm;
  C_Stream stream;
  Message message;
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

// ---- groups of calls -----------------------------------------------------------------------------------------------

// Between group_start and group_end a thread only collects what it is asked for; then all of it happens together.
thread_local int depth = 0;
thread_local std::vector<Letter> letters;
thread_local std::vector<Collective> collectives;

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

C_Status group_start() {
  ++depth;
  return C_SUCCESS;
}

C_Status group_end() {
  if (depth == 0) {
    report("group_end was called without group_start");
    return C_ERROR;
  }
  if (--depth > 0) return C_SUCCESS;
  const std::vector<Letter> sent = std::exchange(letters, {});
  std::vector<Collective> others = std::exchange(collectives, {});
  return guarded([&] {
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
  });
}

// ---- what Paddle calls ---------------------------------------------------------------------------------------------

// All communicators of this process: when it ends, what it has sent is delivered first.
std::mutex opening;
std::vector<std::weak_ptr<Group>>& opened() {
  static auto& groups = *new std::vector<std::weak_ptr<Group>>;  // used while the process exits: never destroyed
  return groups;
}

C_Status get_comm_name(C_CCLComm comm, char* name) {
  std::snprintf(name, kIdBytes, "%s", comm->group->id().c_str());
  return C_SUCCESS;
}

C_Status get_unique_id_size(size_t* size) {
  *size = kIdBytes;
  return C_SUCCESS;
}

C_Status get_unique_id(C_CCLRootId* id) {
  return guarded([&] {
    const std::string text = shm::make_id();
    if (text.size() >= id->sz) throw Error("a unique id of " + std::to_string(id->sz) + " bytes is too small", C_ERROR);
    std::memset(id->data, 0, id->sz);
    std::memcpy(id->data, text.data(), text.size());
  });
}

C_Status comm_init_rank(size_t ranks, C_CCLRootId* id, size_t rank, C_CCLComm* comm) {
  return guarded([&] {
    const char* text = static_cast<const char*>(id->data);
    auto group = std::make_shared<Group>(std::string(text, ::strnlen(text, id->sz)), ranks, rank, seconds_to_wait());
    const std::lock_guard<std::mutex> lock(opening);
    if (opened().empty()) std::atexit([] { xpulab_sim_deliver(); });
    opened().push_back(group);
    *comm = new C_CCLComm_st{std::move(group)};
  });
}

C_Status destroy_comm(C_CCLComm comm) {
  return unthrown([&] { delete comm; });
}

C_Status all_reduce(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    ask(Collective{"all_reduce", comm, stream, recv, count * reduce::size_of(type_of(type)),
                   [=](Group& group, uint64_t turn) { group.all_reduce(turn, send, recv, count, type_of(type), op_of(op)); }});
  });
}

C_Status broadcast(void* data, size_t count, C_DataType type, size_t root, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    ask(Collective{"broadcast", comm, stream, data, count * reduce::size_of(type_of(type)),
                   [=](Group& group, uint64_t turn) { group.broadcast(turn, data, count, type_of(type), root); }});
  });
}

C_Status reduce_to(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, size_t root, C_CCLComm comm,
                   C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    const size_t bytes = comm->group->rank() == root ? count * reduce::size_of(type_of(type)) : 0;  // others get nothing
    ask(Collective{"reduce", comm, stream, recv, bytes, [=](Group& group, uint64_t turn) {
                     group.reduce(turn, send, recv, count, type_of(type), op_of(op), root);
                   }});
  });
}

C_Status all_gather(void* send, void* recv, size_t count, C_DataType type, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    const size_t bytes = count * reduce::size_of(type_of(type)) * comm->group->ranks();
    ask(Collective{"all_gather", comm, stream, recv, bytes,
                   [=](Group& group, uint64_t turn) { group.all_gather(turn, send, recv, count, type_of(type)); }});
  });
}

C_Status reduce_scatter(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm,
                        C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    ask(Collective{
        "reduce_scatter", comm, stream, recv, count * reduce::size_of(type_of(type)),
        [=](Group& group, uint64_t turn) { group.reduce_scatter(turn, send, recv, count, type_of(type), op_of(op)); }});
  });
}

C_Status all_to_all(const void** send, const size_t* send_count, const C_DataType* send_type, void** recv,
                    const size_t* recv_count, const C_DataType* recv_type, size_t, size_t ranks, C_CCLComm comm,
                    C_Stream stream) {
  return guarded([&] {
    if (ranks != comm->group->ranks()) {
      throw Error("all_to_all was called for " + std::to_string(ranks) + " ranks on a communicator of " +
                      std::to_string(comm->group->ranks()),
                  C_ERROR);
    }
    struct Parts {  // the arrays are the caller's, who does not wait
      std::vector<const void*> send;
      std::vector<void*> receive;
      std::vector<size_t> send_count, receive_count;
      std::vector<Type> send_type, receive_type;
    };
    const auto parts = std::make_shared<Parts>();
    char* result = nullptr;  // the longest run of parts that lie one behind another: usually all
    size_t bytes = 0, run = 0;
    char* end = nullptr;
    for (size_t rank = 0; rank < ranks; ++rank) {
      parts->send.push_back(send[rank]);
      parts->receive.push_back(recv[rank]);
      parts->send_count.push_back(send_count[rank]);
      parts->receive_count.push_back(recv_count[rank]);
      parts->send_type.push_back(type_of(send_type[rank]));
      parts->receive_type.push_back(type_of(recv_type[rank]));
      const size_t part = recv_count[rank] * reduce::size_of(type_of(recv_type[rank]));
      if (part == 0) continue;
      char* start = static_cast<char*>(recv[rank]);
      run = start == end ? run + part : part;
      end = start + part;
      if (run > bytes) {
        bytes = run;
        result = end - run;
      }
    }
    ask(Collective{"all_to_all", comm, stream, result, bytes, [parts](Group& group, uint64_t turn) {
                     group.all_to_all(turn, parts->send.data(), parts->send_count.data(), parts->send_type.data(),
                                      parts->receive.data(), parts->receive_count.data(), parts->receive_type.data());
                   }});
  });
}

C_Status send(void* data, size_t count, C_DataType type, size_t to, C_CCLComm comm, C_Stream stream) {
  return guarded([&] { ask(Letter{comm, stream, Message{true, data, count, type_of(type), static_cast<uint32_t>(to), 0}}); });
}

C_Status recv(void* data, size_t count, C_DataType type, size_t from, C_CCLComm comm, C_Stream stream) {
  return guarded(
      [&] { ask(Letter{comm, stream, Message{false, data, count, type_of(type), static_cast<uint32_t>(from), 0}}); });
}

}  // namespace

void add_collectives(C_DeviceInterface* interface) {
  interface->xccl_get_comm_name = get_comm_name;
  interface->xccl_get_unique_id_size = get_unique_id_size;
  interface->xccl_get_unique_id = get_unique_id;
  interface->xccl_comm_init_rank = comm_init_rank;
  interface->xccl_destroy_comm = destroy_comm;
  interface->xccl_all_reduce = all_reduce;
  interface->xccl_broadcast = broadcast;
  interface->xccl_reduce = reduce_to;
  interface->xccl_all_gather = all_gather;
  interface->xccl_reduce_scatter = reduce_scatter;
  interface->xccl_group_start = group_start;
  interface->xccl_group_end = group_end;
  interface->xccl_send = send;
  interface->xccl_recv = recv;
  interface->xccl_all_to_all = all_to_all;
}

}  // namespace sim

extern "C" int xpulab_sim_deliver() {
  std::vector<std::shared_ptr<sim::shm::Group>> groups;
  {
    const std::lock_guard<std::mutex> lock(sim::opening);
    for (const auto& each : sim::opened()) {
      if (auto group = each.lock()) groups.push_back(std::move(group));
    }
  }
  return static_cast<int>(std::count_if(groups.begin(), groups.end(), [](const auto& group) { return !group->deliver(); }));
}
