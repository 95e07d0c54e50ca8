// A C interface to the communicators of the plug-in, so that tests can call them through ctypes, without Paddle.
//
// Each call returns 0, or 1 and the reason in `error` (a buffer of kErrorBytes). Types and operations have Paddle's numbers.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "shm_group.h"

namespace {

using sim::shm::Group;
using sim::shm::Message;
using sim::shm::Op;
using sim::shm::Type;

constexpr size_t kErrorBytes = 4096;

template <typename Body>
int attempt(char* error, Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& failure) {
    std::snprintf(error, kErrorBytes, "%s", failure.what());
    return 1;
  }
}

Group& group_of(void* group) { return *static_cast<Group*>(group); }
Type type_of(uint32_t type) { return static_cast<Type>(type); }
Op op_of(uint32_t op) { return static_cast<Op>(op); }

}  // namespace

extern "C" {

struct xpulab_message {
  int outgoing;
  void* data;
  size_t count;
  uint32_t type, peer;
};

// id: 128 bytes, filled with the id and a zero.
int xpulab_group_make_id(char* id, char* error) {
  return attempt(error, [&] { std::snprintf(id, 128, "%s", sim::shm::make_id().c_str()); });
}

int xpulab_group_remove_stale(char* error) {
  return attempt(error, [&] { sim::shm::remove_stale(); });
}

int xpulab_group_join(const char* id, size_t ranks, size_t rank, double seconds, void** group, char* error) {
  return attempt(error, [&] { *group = new Group(id, ranks, rank, seconds); });
}

void xpulab_group_leave(void* group) { delete static_cast<Group*>(group); }

int xpulab_group_all_reduce(void* group, const void* send, void* receive, size_t count, uint32_t type, uint32_t op,
                            char* error) {
  return attempt(error, [&] {
    sim::reduce::require(type_of(type), op_of(op));
    group_of(group).all_reduce(group_of(group).post(), send, receive, count, type_of(type), op_of(op));
  });
}

int xpulab_group_reduce(void* group, const void* send, void* receive, size_t count, uint32_t type, uint32_t op, size_t root,
                        char* error) {
  return attempt(error, [&] {
    sim::reduce::require(type_of(type), op_of(op));
    group_of(group).reduce(group_of(group).post(), send, receive, count, type_of(type), op_of(op), root);
  });
}

int xpulab_group_broadcast(void* group, void* data, size_t count, uint32_t type, size_t root, char* error) {
  return attempt(error, [&] { group_of(group).broadcast(group_of(group).post(), data, count, type_of(type), root); });
}

int xpulab_group_all_gather(void* group, const void* send, void* receive, size_t count, uint32_t type, char* error) {
  return attempt(error, [&] { group_of(group).all_gather(group_of(group).post(), send, receive, count, type_of(type)); });
}

int xpulab_group_reduce_scatter(void* group, const void* send, void* receive, size_t count, uint32_t type, uint32_t op,
                                char* error) {
  return attempt(error, [&] {
    sim::reduce::require(type_of(type), op_of(op));
    group_of(group).reduce_scatter(group_of(group).post(), send, receive, count, type_of(type), op_of(op));
  });
}

int xpulab_group_all_to_all(void* group, const void* const* send, const size_t* send_count, void* const* receive,
                            const size_t* receive_count, uint32_t type, char* error) {
  return attempt(error, [&] {
    const std::vector<Type> types(group_of(group).ranks(), type_of(type));
    group_of(group).all_to_all(group_of(group).post(), send, send_count, types.data(), receive, receive_count, types.data());
  });
}

int xpulab_group_exchange(void* group, const xpulab_message* messages, size_t number, char* error) {
  return attempt(error, [&] {
    std::vector<Message> asked;
    for (size_t each = 0; each < number; ++each) {
      const xpulab_message& message = messages[each];
      asked.push_back({message.outgoing != 0, message.data, message.count, type_of(message.type), message.peer, 0});
    }
    group_of(group).post(asked);
    group_of(group).exchange(asked);
  });
}
}
