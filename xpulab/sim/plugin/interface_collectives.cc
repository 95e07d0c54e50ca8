// Callbacks about communicators (xccl_*).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives.h"
#include "error.h"
#include "interface.h"
#include "settings.h"

namespace sim {
namespace {

using shm::Group;
using shm::Message;
using shm::Op;
using shm::Type;

constexpr size_t kIdBytes = 128;  // the size of Paddle's buffer for the name of a communicator

Type type_of(C_DataType type) { return static_cast<Type>(type); }
Op op_of(C_CCLReduceOp op) { return static_cast<Op>(op); }

double timeout_seconds() { return static_cast<double>(settings().timeout.count()) / 1000.0; }

// All communicators of this process. Before it ends, what it has sent is delivered.
std::mutex communicators_mutex;
std::vector<std::weak_ptr<Group>>& communicators() {
  static auto& groups = *new std::vector<std::weak_ptr<Group>>;  // never destroyed: used while the process exits
  return groups;
}

// Waits, up to the timeout, until everything that this process has sent is received or in a mailbox.
void deliver_all() {
  std::vector<std::shared_ptr<Group>> groups;
  {
    const std::lock_guard<std::mutex> lock(communicators_mutex);
    for (const auto& each : communicators()) {
      if (auto group = each.lock()) groups.push_back(std::move(group));
    }
  }
  for (const auto& group : groups) group->deliver();
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
    auto group = std::make_shared<Group>(std::string(text, ::strnlen(text, id->sz)), ranks, rank, timeout_seconds());
    const std::lock_guard<std::mutex> lock(communicators_mutex);
    if (communicators().empty()) std::atexit(deliver_all);
    communicators().push_back(group);
    *comm = new C_CCLComm_st{std::move(group)};
  });
}

C_Status destroy_comm(C_CCLComm comm) {
  return without_throwing([&] { delete comm; });
}

C_Status group_start() {
  begin_group();
  return C_SUCCESS;
}

C_Status group_end() {
  if (!in_group()) {
    report("group_end was called without group_start");
    return C_ERROR;
  }
  return guarded([] { end_group(); });
}

C_Status all_reduce(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    submit(PendingCollective{
        "all_reduce", comm, stream, recv, count * reduce::size_of(type_of(type)),
        [=](Group& group, uint64_t turn) { group.all_reduce(turn, send, recv, count, type_of(type), op_of(op)); }});
  });
}

C_Status broadcast(void* data, size_t count, C_DataType type, size_t root, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    submit(PendingCollective{"broadcast", comm, stream, data, count * reduce::size_of(type_of(type)),
                             [=](Group& group, uint64_t turn) { group.broadcast(turn, data, count, type_of(type), root); }});
  });
}

C_Status reduce_to(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, size_t root, C_CCLComm comm,
                   C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    const size_t bytes = comm->group->rank() == root ? count * reduce::size_of(type_of(type)) : 0;  // only the root receives
    submit(PendingCollective{"reduce", comm, stream, recv, bytes, [=](Group& group, uint64_t turn) {
                               group.reduce(turn, send, recv, count, type_of(type), op_of(op), root);
                             }});
  });
}

C_Status all_gather(void* send, void* recv, size_t count, C_DataType type, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    const size_t bytes = count * reduce::size_of(type_of(type)) * comm->group->ranks();
    submit(PendingCollective{"all_gather", comm, stream, recv, bytes,
                             [=](Group& group, uint64_t turn) { group.all_gather(turn, send, recv, count, type_of(type)); }});
  });
}

C_Status reduce_scatter(void* send, void* recv, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm,
                        C_Stream stream) {
  return guarded([&] {
    reduce::require(type_of(type), op_of(op));
    submit(PendingCollective{
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
    struct Parts {  // copies: the caller's arrays may no longer exist when the collective runs
      std::vector<const void*> send;
      std::vector<void*> receive;
      std::vector<size_t> send_count, receive_count;
      std::vector<Type> send_type, receive_type;
    };
    const auto parts = std::make_shared<Parts>();
    void* result = nullptr;  // the first part that is not empty
    size_t bytes = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      parts->send.push_back(send[rank]);
      parts->receive.push_back(recv[rank]);
      parts->send_count.push_back(send_count[rank]);
      parts->receive_count.push_back(recv_count[rank]);
      parts->send_type.push_back(type_of(send_type[rank]));
      parts->receive_type.push_back(type_of(recv_type[rank]));
      if (bytes > 0 || recv_count[rank] == 0) continue;
      result = recv[rank];
      bytes = recv_count[rank] * reduce::size_of(type_of(recv_type[rank]));
    }
    submit(PendingCollective{"all_to_all", comm, stream, result, bytes, [parts](Group& group, uint64_t turn) {
                               group.all_to_all(turn, parts->send.data(), parts->send_count.data(), parts->send_type.data(),
                                                parts->receive.data(), parts->receive_count.data(), parts->receive_type.data());
                             }});
  });
}

C_Status send(void* data, size_t count, C_DataType type, size_t to, C_CCLComm comm, C_Stream stream) {
  return guarded(
      [&] { submit(PendingMessage{comm, stream, Message{true, data, count, type_of(type), static_cast<uint32_t>(to), 0}}); });
}

C_Status recv(void* data, size_t count, C_DataType type, size_t from, C_CCLComm comm, C_Stream stream) {
  return guarded([&] {
    submit(PendingMessage{comm, stream, Message{false, data, count, type_of(type), static_cast<uint32_t>(from), 0}});
  });
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
