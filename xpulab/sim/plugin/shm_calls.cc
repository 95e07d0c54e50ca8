// See shm_calls.h.
#include "shm_calls.h"

namespace sim::shm {

const char* name_of(Kind kind) {
  static const char* const kNames[] = {"nothing",    "all_reduce",     "reduce",    "broadcast",
                                       "all_gather", "reduce_scatter", "all_to_all"};
  const auto number = static_cast<uint32_t>(kind);
  return number <= 6 ? kNames[number] : "an unknown collective";
}

std::string elements(uint64_t count, Type type) { return std::to_string(count) + " x " + reduce::name_of(type); }

std::string text_of(const Call& call, size_t ranks) {
  std::string text = std::string(name_of(call.kind)) + "(";
  if (call.kind == Kind::kAllToAll) {
    for (size_t peer = 0; peer < ranks; ++peer) {
      text += (peer ? ", " : "to/from ranks: ") + elements(call.send[peer], call.send_type[peer]) + "/" +
              elements(call.receive[peer], call.receive_type[peer]);
    }
    return text + ")";
  }
  text += elements(call.count, call.type);
  const bool reduces = call.kind == Kind::kAllReduce || call.kind == Kind::kReduce || call.kind == Kind::kReduceScatter;
  if (reduces) text += std::string(", ") + reduce::name_of(call.op);
  if (call.kind == Kind::kReduce || call.kind == Kind::kBroadcast) text += ", root " + std::to_string(call.root);
  return text + ")";
}

std::string text_of(const Message& message) {
  return (message.outgoing ? "send(" : "recv(") + elements(message.count, message.type) +
         (message.outgoing ? ", to rank " : ", from rank ") + std::to_string(message.peer) + ")";
}

std::string numbers(const std::vector<size_t>& ranks) {
  std::string text;
  for (size_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "none" : text;
}

}  // namespace sim::shm
