// Collectives and messages as Paddle asks for them: queued on its streams, done on their threads by the communicator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "paddle/phi/backends/device_ext.h"
#include "shm_group.h"

struct C_CCLComm_st {
  std::shared_ptr<sim::shm::Group> group;  // queued work may outlive the communicator
};

namespace sim {

// A collective as it was asked for. result: where what comes out will be, for faults to flip a bit of.
struct Collective {
  const char* kind;
  C_CCLComm comm;
  C_Stream stream;
  void* result;
  size_t bytes;
  std::function<void(shm::Group& group, uint64_t turn)> body;
};

// A message as it was asked for.
struct Letter {
  C_CCLComm comm;
  C_Stream stream;
  shm::Message message;
};

// Queues it, or keeps it until end_calls() when begin_calls() was called before on this thread. Throws sim::Error when the
// card is gone.
void ask(const Letter& letter);
void ask(Collective collective);

// Between the two a thread only collects what it is asked for; then all of it happens together. They may be nested.
void begin_calls();
void end_calls();
bool is_collecting();

}  // namespace sim
