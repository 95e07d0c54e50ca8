// A communicator: collectives and messages between the processes of one machine, through one bounded shared segment.
//
// Independent of Paddle. Every call blocks until this rank's part is done. A wait sleeps, and it ends with a Failure when a
// missing rank has died (detected within 0.2 s), has left, or does not arrive before the timeout. When a call fails on one
// rank, it fails on all ranks, and the communicator cannot be used again.
//
// Memory of a segment: 0.8 MB for 2 ranks, 2.2 MB for 4 and for 8, 4.2 MB for 16 (Group::bytes).
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shm_calls.h"
#include "shm_notifier.h"
#include "shm_segment.h"

namespace sim::shm {

// Creates the segment of a new communicator and returns its id, which all ranks need. Also removes stale segments.
std::string make_id();

// Removes the segments of this user whose creator and ranks have all ended, except the one with the id `except`.
void remove_stale(const std::string& except = "");

class Group {
 public:
  // Joins as one of `ranks` ranks and returns when all have joined. The segment has no name in /dev/shm from then on.
  // seconds: the timeout of every wait.
  Group(const std::string& id, size_t ranks, size_t rank, double seconds);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  size_t ranks() const { return ranks_; }
  size_t rank() const { return rank_; }
  const std::string& id() const { return id_; }

  // Collectives run in the order in which they were posted, on whatever threads: post() returns the turn, which is passed
  // to the call. A turn that never runs blocks all later ones: call fail() then.
  uint64_t post();
  // Sets the turns of messages. Those to one rank, and those from one rank, are transferred in the order of posting.
  void post(std::vector<Message>& messages);

  // send and receive may be the same buffer. count: as in Paddle's device interface, elements of the receive buffer for
  // reduce_scatter, of the send buffer for all others. Buffers may be null when count is 0.
  void all_reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op);
  void reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op, size_t root);
  void broadcast(uint64_t turn, void* data, size_t count, Type type, size_t root);
  void all_gather(uint64_t turn, const void* send, void* receive, size_t count, Type type);
  void reduce_scatter(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op);
  // Arrays with one entry for each rank. Part r of send goes to rank r, part r of receive comes from rank r.
  void all_to_all(uint64_t turn, const void* const* send, const size_t* send_count, const Type* send_type, void* const* receive,
                  const size_t* receive_count, const Type* receive_type);

  // Transfers all messages concurrently, so that ranks which post them in different orders do not deadlock. Returns when
  // everything was received; buffers that were sent may then be changed, whether the receiver has read them or not: what
  // does not fit the mailbox (64 KB with up to 4 ranks, 8 KB with 16) is copied, and a thread delivers it as the receiver
  // makes room. Paddle relies on this: it does not group the messages of a custom device, and all ranks of a ring send
  // before they receive.
  void exchange(const std::vector<Message>& messages);

  // Whether sent data is still in this process. It is lost when the process ends.
  bool is_delivering() const { return undelivered_.load() > 0; }
  // Waits, up to the timeout, until everything is delivered. Returns whether it is.
  bool deliver();

  // Fails the communicator on all ranks. All report the first reason given.
  void fail(const std::string& why) noexcept;

  static void create(const Name& name);           // creates the segment; no rank has joined
  static bool has_living_rank(const Name& name);  // whether a process that joined is still running

 private:
  struct Header;
  struct Slot;
  struct Turns;
  struct Transfer;
  struct Missing {
    std::vector<size_t> ranks;  // that a wait is waiting for
    std::string details;        // for the error message
  };
  using Step = std::function<void(size_t round, size_t half)>;
  using Rounds = std::function<size_t()>;
  using Condition = std::function<bool()>;
  using FindMissing = std::function<Missing()>;

  Slot& slot(size_t rank) const;
  char* area(size_t half, size_t rank) const;
  char* mailbox(size_t from, size_t to) const;

  void join();
  void check(Type type, size_t root = 0);
  Call checked(Kind kind, Type type, size_t count, Op op = Op::kSum, size_t root = 0);
  void run(uint64_t turn, Call call, const Step& write, const Rounds& rounds, const Step& read);
  void compare_calls();
  void barrier();
  Missing not_arrived(const std::function<bool(const Slot&)>& has_arrived) const;
  void reduce_all(uint64_t turn, const Call& call, const void* send, void* receive, bool keep_result);
  void deliver_later(Transfer& transfer);
  void deliver_copied();
  bool send_step(Transfer& transfer);
  bool receive_step(Transfer& transfer);
  // After a step that moved data: notifies the peer, and starts the next turn when the transfer is finished.
  void finish_step(Transfer& transfer, Turns& turns);

  // Waits until ready. Throws Failure when a missing rank has ended or the timeout is over.
  void wait(Notifier& changed, const Condition& ready, const FindMissing& find_missing);
  bool has_ended(size_t rank) const;
  void throw_if_failed() const;
  [[noreturn]] void fail_and_throw(const std::string& why);
  std::string where() const;
  std::string describe(size_t rank) const;
  void set_activity(const std::string& activity);

  std::string id_;
  Name name_;
  size_t ranks_;
  size_t rank_;
  pid_t owner_ = ::getpid();
  std::chrono::milliseconds timeout_;
  Segment segment_;
  Header* header_ = nullptr;
  size_t share_bytes_ = 0;    // of one rank in one half of the area of the collectives
  size_t mailbox_bytes_ = 0;  // of one mailbox
  uint64_t calls_ = 0, chunks_ = 0;
  uint32_t barriers_ = 0;
  std::unique_ptr<Turns> collectives_;
  std::unique_ptr<Turns[]> outgoing_, incoming_;
  std::mutex posting_mutex_, activity_mutex_;

  // Messages that did not fit their mailbox. The thread starts with the first of them.
  std::mutex delivery_mutex_;
  std::list<Transfer> to_deliver_;
  std::atomic<uint64_t> undelivered_{0};
  std::atomic<bool> leaving_{false};
  std::thread delivery_thread_;
};

}  // namespace sim::shm
