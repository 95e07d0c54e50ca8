// The state of a communicator: what all ranks share in the segment, and what is private to each rank.
//
// The segment: a header (a slot for each rank, the counters of a mailbox for each pair of ranks), then two halves of
// ranks x share_bytes through which collectives pass their chunks, then a ring buffer for each ordered pair of ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "shm_bytes.h"
#include "shm_group.h"

namespace sim::shm {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x3130306d69737078;           // "xpsim001"
constexpr std::chrono::milliseconds kCheckInterval{200};  // how often a waiting rank checks that the others are alive
constexpr size_t kFailureText = 3000, kActivityText = 200;

enum State : uint32_t { kNew = 0, kResizing, kReady };
enum Membership : uint32_t { kAbsent = 0, kJoining, kJoined, kLeft };

extern thread_local std::string current_call;  // of this thread, for error messages

template <size_t kSize>
void write_text(char (&to)[kSize], const std::string& text) {
  const size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

template <size_t kSize>
std::string read_text(const char (&from)[kSize]) {
  return std::string(from, ::strnlen(from, kSize));
}

// What precedes the data of a message in a mailbox.
struct MessageHeader {
  uint64_t count;
  uint32_t type;
  uint32_t unused;
};
static_assert(sizeof(MessageHeader) == kAlignment);

// How many bytes the sender has written, and the receiver has read, since the communicator was created.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
};

struct Group::Slot {
  std::atomic<uint32_t> membership{kAbsent};
  Process process;
  std::atomic<uint32_t> barriers{0};  // how many barriers it has entered
  Notifier changed;                   // notified when a mailbox or a turn of this rank changes
  Call calls[2];                      // the last two collectives, alternating
  char activity[kActivityText] = "";  // for error messages only: may be read while it changes
};

struct Group::Header {
  uint64_t magic = kMagic;
  std::atomic<uint32_t> state{kNew};
  std::atomic<uint32_t> ranks{0};
  std::atomic<uint32_t> joined{0};
  Notifier join_changed;
  std::atomic<uint64_t> arrivals{0};    // entries into all barriers
  std::atomic<uint32_t> generation{0};  // barriers that all ranks have entered
  Notifier barrier_changed;
  std::atomic<uint32_t> failed{0};  // 1 while the reason is being written, 2 when it can be read
  char failure[kFailureText] = "";
  Slot slots[kMostRanks];
  Mailbox mail[kMostRanks][kMostRanks];  // [from][to]
};

// The order of calls within this process: turns are assigned as calls are posted, and run one after another.
struct Group::Turns {
  uint64_t posted = 0;
  std::atomic<uint64_t> done{0};
};

// A message that is being sent or received.
struct Group::Transfer {
  Message message;
  size_t bytes;            // of the whole message
  size_t transferred = 0;  // bytes written or read so far, with the padding to kAlignment
  bool started = false;    // its header is written or read
  bool finished = false;
  std::vector<char> copied;  // for the delivery thread: the message from byte copied_from on
  size_t copied_from = 0;

  const char* source() const {
    return copied.empty() ? at(static_cast<const void*>(message.data), transferred)
                          : copied.data() + (transferred - copied_from);
  }
};

}  // namespace sim::shm
