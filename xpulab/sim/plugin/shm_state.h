// The state of a communicator: what all ranks share in the segment, and what each rank keeps to itself.
//
// The segment: a header (a slot a rank, a mailbox's counters a pair of ranks), then two halves of ranks x share bytes in
// which collectives pass their chunks, then a ring of bytes for each ordered pair of ranks.
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

constexpr uint64_t kMagic = 0x3130306d69737078;  // "xpsim001"
constexpr std::chrono::milliseconds kSlice{200};
constexpr size_t kFailureText = 3000, kDoingText = 200;

enum State : uint32_t { kFresh = 0, kSizing, kReady };
enum Presence : uint32_t { kAbsent = 0, kComing, kHere, kLeft };

extern thread_local std::string current;  // what this thread is doing, for messages

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

// The head of a message in a mailbox.
struct Head {
  uint64_t count;
  uint32_t type;
  uint32_t unused;
};
static_assert(sizeof(Head) == kAlignment);

struct Mailbox {  // bytes ever written by the sender, ever read by the receiver
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
};

struct Group::Slot {
  std::atomic<uint32_t> presence{kAbsent};
  Process process;
  std::atomic<uint32_t> barriers{0};  // at how many barriers it has arrived
  Bell bell;                          // rung when a mailbox of this rank, or a turn within it, changed
  Call calls[2];                      // of the last collectives, by turns
  char doing[kDoingText] = "";        // for messages only: may be read while it changes
};

struct Group::Header {
  uint64_t magic = kMagic;
  std::atomic<uint32_t> state{kFresh};
  std::atomic<uint32_t> ranks{0};
  std::atomic<uint32_t> joined{0};
  Bell joining;
  std::atomic<uint64_t> arrivals{0};    // at all barriers together
  std::atomic<uint32_t> generation{0};  // barriers at which all have arrived
  Bell meeting;
  std::atomic<uint32_t> failed{0};  // 1 while the reason is being written, 2 when it can be read
  char failure[kFailureText] = "";
  Slot slots[kMostRanks];
  Mailbox mail[kMostRanks][kMostRanks];  // [from][to]
};

// Turns of the threads of this process.
struct Group::Lane {
  uint64_t posted = 0;
  std::atomic<uint64_t> done{0};
};

struct Group::Transfer {
  Message message;
  size_t bytes;          // of the whole message
  size_t passed = 0;     // of them written or read, and of what fills them up to kAlignment
  bool started = false;  // its head is written or read
  bool finished = false;
  std::vector<char> rest;  // what the carrier has to deliver, from byte rest_from of the message on
  size_t rest_from = 0;

  const char* source() const {
    return rest.empty() ? at(static_cast<const void*>(message.data), passed) : rest.data() + (passed - rest_from);
  }
};

}  // namespace sim::shm
