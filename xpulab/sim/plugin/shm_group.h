// A communicator: collectives and messages between the processes of one machine, through one bounded shared segment.
//
// Nothing here knows Paddle. Every call blocks until this rank's part is done; no wait is busy, none is for ever: it ends
// with a Failure when a rank that is waited for has died (noticed within 0.2 s), has left, or does not come within the
// time limit. A call that one rank fails fails on all ranks, and the communicator cannot be used again.
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

#include "shm_bell.h"
#include "shm_calls.h"
#include "shm_segment.h"

namespace sim::shm {

// Makes a segment for a new communicator and returns its id, which all ranks need. Also removes what crashed runs left.
std::string make_id();

// Removes segments of this user which no living process made or has joined, but not the one with the id `except`.
void remove_stale(const std::string& except = "");

class Group {
 public:
  // Joins as one of so many ranks; returns when all have joined. Nothing of it can be seen in /dev/shm from then on.
  Group(const std::string& id, size_t ranks, size_t rank, double seconds);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  size_t ranks() const { return ranks_; }
  size_t rank() const { return rank_; }
  size_t bytes() const { return segment_.size(); }
  const std::string& id() const { return id_; }

  // Collectives are done in the order in which they were posted, whatever threads run them: post() gives the turn,
  // which the call is run with. A turn that is never run blocks those after it: fail() the communicator then.
  uint64_t post();
  // Messages to (and from) one rank are done in the order in which they were posted.
  void post(std::vector<Message>& messages);

  // send and receive buffers may be the same; count is as in the interface that Paddle calls: of the receive buffer
  // for reduce_scatter, of the send buffer for all others. Buffers may be null when nothing is in them.
  void all_reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op);
  void reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op, size_t root);
  void broadcast(uint64_t turn, void* data, size_t count, Type type, size_t root);
  void all_gather(uint64_t turn, const void* send, void* receive, size_t count, Type type);
  void reduce_scatter(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op);
  // Arrays of one entry a rank. Part r of send goes to rank r, part r of receive comes from there; count 0 is nothing.
  void all_to_all(uint64_t turn, const void* const* send, const size_t* send_count, const Type* send_type, void* const* receive,
                  const size_t* receive_count, const Type* receive_type);

  // All of them at once, so that ranks which post them in different orders do not wait for each other for ever. Returns
  // when everything was received; what was sent may be changed then. Nobody has to receive it for that: what does not fit
  // the mailbox (64 KB with up to 4 ranks, 8 KB with 16) is copied and delivered by a thread as the receiver makes room.
  // Paddle counts on it: it does not group the messages of a custom device, and both ends of a ring send first.
  void exchange(const std::vector<Message>& messages);

  // Whether something that was sent is still here. It is lost when this process ends.
  bool is_delivering() const { return undelivered_.load() > 0; }
  // Waits, up to the time limit, until nothing is. Returns whether that came true.
  bool deliver();

  // Tells all ranks that this one cannot go on. The first reason given is the one that all report.
  void fail(const std::string& why) noexcept;

  static void make(const Name& name);              // the segment, with nobody in it
  static bool joined_by_living(const Name& name);  // whether a process that joined is alive

 private:
  struct Header;
  struct Slot;
  struct Lane;
  struct Transfer;
  struct Awaited {
    std::vector<size_t> ranks;  // that have not come
    std::string others;         // what is to be said of the rest
  };
  using Step = std::function<void(size_t round, size_t half)>;
  using Rounds = std::function<size_t()>;
  using Question = std::function<bool()>;
  using Roll = std::function<Awaited()>;

  Slot& slot(size_t rank) const;
  char* area(size_t half, size_t rank) const;
  char* mailbox(size_t from, size_t to) const;

  void join();
  void check(Type type, size_t root = 0);
  void run(uint64_t turn, Call call, const Step& write, const Rounds& rounds, const Step& read);
  void compare();
  void barrier();
  Awaited roll(const std::function<bool(const Slot&)>& has_come) const;
  void reduce_all(uint64_t turn, const Call& call, const void* send, void* receive, bool wanted);
  void hand_over(Transfer& transfer);
  void carry();
  bool step_out(Transfer& transfer);
  bool step_in(Transfer& transfer);
  // After a step that moved something: wakes the peer, and at the transfer's end lets the next one of its lane begin.
  void has_moved(Transfer& transfer, Lane& lane);

  // Sleeps on the bell until ready, or until the roll shows that it is no use.
  void wait(Bell& bell, const Question& ready, const Roll& roll);
  bool ended(size_t rank) const;
  void stop_if_failed() const;
  [[noreturn]] void refuse(const std::string& why);
  std::string where() const;
  std::string describe(size_t rank) const;
  void doing(const std::string& what);

  std::string id_;
  Name name_;
  size_t ranks_;
  size_t rank_;
  pid_t owner_ = ::getpid();
  std::chrono::milliseconds limit_;
  Segment segment_;
  Header* header_ = nullptr;
  size_t share_ = 0;  // bytes of one rank in one half of the area of the collectives
  size_t mail_ = 0;   // bytes of one mailbox
  uint64_t calls_ = 0, chunks_ = 0;
  uint32_t barriers_ = 0;
  std::unique_ptr<Lane> collectives_;
  std::unique_ptr<Lane[]> outgoing_, incoming_;
  std::mutex posting_, writing_;

  // The carrier: a thread that is there from the first message which did not fit its mailbox.
  std::mutex carrying_;
  std::list<Transfer> to_carry_;
  std::atomic<uint64_t> undelivered_{0};
  std::atomic<bool> closing_{false};
  std::thread carrier_;
};

}  // namespace sim::shm
