// The calls of a communicator: a collective or a message, and their text in error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "limits.h"
#include "reduce_types.h"

namespace sim::shm {

using reduce::Op;
using reduce::Type;

enum class Kind : uint32_t { kNone = 0, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };
const char* name_of(Kind kind);  // "all_reduce"

// A collective as one rank called it. All ranks must call the same; it is stored in shared memory for comparison.
struct Call {
  Kind kind = Kind::kNone;
  Type type = Type::kUInt8;                                  // of all elements; not used by all_to_all
  Op op = Op::kSum;                                          // of reductions
  uint32_t root = 0;                                         // of reduce and broadcast
  uint64_t number = 0;                                       // how many collectives this communicator did before
  uint64_t count = 0;                                        // elements, as the caller gave them
  uint64_t send[kMostRanks] = {}, receive[kMostRanks] = {};  // all_to_all: elements to and from each rank
  Type send_type[kMostRanks] = {}, receive_type[kMostRanks] = {};
};

// One send or receive.
struct Message {
  bool outgoing = false;
  void* data = nullptr;  // only read when outgoing
  uint64_t count = 0;    // elements
  Type type = Type::kUInt8;
  uint32_t peer = 0;  // the other rank
  uint64_t turn = 0;  // set by Group::post
};

// For error messages: "all_reduce(7 x FLOAT32, SUM)", "send(7 x FLOAT32, to rank 1)", "7 x FLOAT32".
std::string text_of(const Call& call, size_t ranks);
std::string text_of(const Message& message);
std::string elements(uint64_t count, Type type);
std::string numbers(const std::vector<size_t>& ranks);  // "0, 2", or "none"

}  // namespace sim::shm
