// Collectives and messages as Paddle submits them: queued on its streams, run by the communicator on their threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "paddle/phi/backends/device_ext.h"
#include "shm_group.h"

struct C_CCLComm_st {
  std::shared_ptr<sim::shm::Group> group;  // shared with queued work, which may outlive the communicator
};

namespace sim {

// A collective. result, bytes: its output, in which a fault may flip a bit.
struct PendingCollective {
  const char* kind;
  C_CCLComm comm;
  C_Stream stream;
  void* result;
  size_t bytes;
  std::function<void(shm::Group& group, uint64_t turn)> body;
};

// A message.
struct PendingMessage {
  C_CCLComm comm;
  C_Stream stream;
  shm::Message message;
};

// Queues it, or keeps it until end_group() while a group is open on this thread. Throws sim::Error when the card is lost.
void submit(const PendingMessage& pending);
void submit(PendingCollective collective);

// A group: between the two, submit() only collects; end_group() queues everything together. Groups may be nested.
void begin_group();
void end_group();
bool in_group();

}  // namespace sim
