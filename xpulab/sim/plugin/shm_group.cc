// See shm_group.h.
//
// The segment: a header (a slot a rank, a mailbox's counters a pair of ranks), then two halves of ranks x share bytes in
// which collectives pass their chunks, then a ring of bytes for each ordered pair of ranks.
//
// A collective goes in rounds. In a round every rank writes its chunk into its share of one half, all meet at a barrier,
// and all read what the others wrote. Rounds use the halves in turn: a rank that writes to a half has met, at the barrier of
// the round between, everyone who had read from it. So one barrier a round is enough.
#include "shm_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace sim::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMagic = 0x3130306d69737078;  // "xpsim001"
constexpr std::chrono::milliseconds kSlice{200};
constexpr int kSpins = 64;         // looks at the word before sleeping: some microseconds
constexpr size_t kSmall = 2048;    // bytes a rank up to which every rank adds up everything itself
constexpr size_t kAlignment = 16;  // the largest element
constexpr size_t kFailureText = 3000, kDoingText = 200;

enum State : uint32_t { kFresh = 0, kSizing, kReady };
enum Presence : uint32_t { kAbsent = 0, kComing, kHere, kLeft };

thread_local std::string current = "comm_init_rank";  // what this thread is doing, for messages

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t share_bytes(size_t ranks) { return ranks <= 4 ? 128 << 10 : 64 << 10; }
size_t mail_bytes(size_t ranks) { return ranks <= 4 ? 64 << 10 : ranks <= 8 ? 16 << 10 : 8 << 10; }

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

const char* at(const void* data, size_t bytes) {
  return bytes == 0 ? static_cast<const char*>(data) : static_cast<const char*>(data) + bytes;
}
char* at(void* data, size_t bytes) { return bytes == 0 ? static_cast<char*>(data) : static_cast<char*>(data) + bytes; }

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

}  // namespace

const char* name_of(Kind kind) {
  static const char* const kNames[] = {"nothing",    "all_reduce",     "reduce",    "broadcast",
                                       "all_gather", "reduce_scatter", "all_to_all"};
  const auto number = static_cast<uint32_t>(kind);
  return number <= 6 ? kNames[number] : "an unknown collective";
}

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
  Slot slots[kMaxRanks];
  Mailbox mail[kMaxRanks][kMaxRanks];  // [from][to]
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

// ---- making, joining, leaving --------------------------------------------------------------------------------------

std::string make_id() {
  remove_stale();
  const Name name = Name::next();
  Group::make(name);
  return name.text();
}

size_t remove_stale(const std::string& except) {
  size_t removed = 0;
  for (const Name& name : names_present()) {
    if (name.text() == except || name.creator_alive() || Group::joined_by_living(name)) continue;
    unlink(name);
    ++removed;
  }
  return removed;
}

void Group::make(const Name& name) {
  Segment segment = Segment::create(name, sizeof(Header));
  new (segment.data()) Header;
}

bool Group::joined_by_living(const Name& name) {
  try {
    const Segment segment = Segment::open(name, false);
    if (segment.size() < sizeof(Header)) return false;
    const auto* header = reinterpret_cast<const Header*>(segment.data());
    return std::any_of(std::begin(header->slots), std::end(header->slots),
                       [](const Slot& slot) { return slot.presence.load() == kHere && slot.process.alive(); });
  } catch (const Failure&) {
    return false;  // gone in the meantime
  }
}

Group::Group(const std::string& id, size_t ranks, size_t rank, double seconds)
    : id_(id),
      name_(Name::parse(id)),
      ranks_(ranks),
      rank_(rank),
      limit_(static_cast<int64_t>(seconds * 1000)),
      segment_((remove_stale(id), Segment::open(name_))),
      collectives_(new Lane),
      outgoing_(new Lane[kMaxRanks]),
      incoming_(new Lane[kMaxRanks]) {
  if (ranks < 1 || ranks > kMaxRanks) {
    throw Failure("a simulated communicator has 1 to " + std::to_string(kMaxRanks) + " ranks, not " + std::to_string(ranks));
  }
  if (rank >= ranks) {
    throw Failure("rank " + std::to_string(rank) + " of a communicator of " + std::to_string(ranks) + " ranks does not exist");
  }
  header_ = reinterpret_cast<Header*>(segment_.data());
  if (segment_.size() < sizeof(Header) || header_->magic != kMagic) {
    throw Failure("/dev/shm/" + id + ": not a segment of this version of the simulated device");
  }
  share_ = share_bytes(ranks);
  mail_ = mail_bytes(ranks);
  try {
    join();
  } catch (const std::exception& error) {
    fail(error.what());
    unlink(name_);
    throw;
  }
  unlink(name_);
  doing("nothing yet");
}

Group::~Group() {
  if (::getpid() != owner_) {  // a child that was forked from the rank, without its threads
    if (carrier_.joinable()) carrier_.detach();
    return;
  }
  deliver();
  closing_.store(true);
  slot(rank_).bell.ring();
  if (carrier_.joinable()) carrier_.join();
  doing("it has destroyed the communicator");
  slot(rank_).presence.store(kLeft);
}

void Group::join() {
  current = "comm_init_rank";
  stop_if_failed();
  uint32_t fresh = kFresh;
  if (header_->state.compare_exchange_strong(fresh, kSizing)) {
    header_->ranks.store(static_cast<uint32_t>(ranks_));
    segment_.grow(sizeof(Header) + 2 * ranks_ * share_ + ranks_ * ranks_ * mail_);
    header_ = reinterpret_cast<Header*>(segment_.data());
    header_->state.store(kReady);
    header_->joining.ring();
  }
  const auto sized = [this] { return header_->state.load() == kReady; };
  wait(header_->joining, sized, [] { return Awaited{{}, "The rank that came first has not finished making the segment."}; });
  if (header_->ranks.load() != ranks_) {
    refuse("this rank was told that there are " + std::to_string(ranks_) + " ranks, the one that came first was told " +
           std::to_string(header_->ranks.load()));
  }
  segment_.map_all();
  header_ = reinterpret_cast<Header*>(segment_.data());
  Slot& own = slot(rank_);
  uint32_t absent = kAbsent;
  if (!own.presence.compare_exchange_strong(absent, kComing)) {
    refuse("two processes joined as rank " + std::to_string(rank_) + ", " + std::to_string(own.process.id) + " and " +
           std::to_string(::getpid()));
  }
  own.process = Process::self();
  doing(current);
  own.presence.store(kHere);
  header_->joined.fetch_add(1);
  header_->joining.ring();
  const auto all_joined = [this] { return header_->joined.load() == ranks_; };
  // One that has joined and died is missing too: it will not take part in what follows.
  const auto has_come = [](const Slot& other) { return other.presence.load() == kHere && other.process.alive(); };
  wait(header_->joining, all_joined, [this, &has_come] { return roll(has_come); });
}

// ---- where things are ----------------------------------------------------------------------------------------------

Group::Slot& Group::slot(size_t rank) const { return header_->slots[rank]; }

char* Group::area(size_t half, size_t rank) const { return segment_.data() + sizeof(Header) + (half * ranks_ + rank) * share_; }

char* Group::mailbox(size_t from, size_t to) const { return area(2, 0) + (from * ranks_ + to) * mail_; }

// ---- waiting and failing -------------------------------------------------------------------------------------------

void Group::wait(Bell& bell, const Question& ready, const Roll& roll) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return;
  }
  const Clock::time_point start = Clock::now();
  Clock::time_point look = start + std::min(kSlice, limit_);
  while (true) {
    const uint32_t seen = bell.count.load();
    if (ready()) return;
    stop_if_failed();
    const Clock::time_point now = Clock::now();
    if (now >= look) {
      const Awaited awaited = roll();
      std::vector<size_t> gone;
      std::copy_if(awaited.ranks.begin(), awaited.ranks.end(), std::back_inserter(gone),
                   [this](size_t rank) { return ended(rank); });
      if (ready()) return;  // the last thing that it did before it ended
      if (!gone.empty() || now - start >= limit_) {
        const std::vector<size_t>& blamed = gone.empty() ? awaited.ranks : gone;
        std::string text =
            gone.empty() ? "waited for " + std::to_string(limit_.count() / 1000.0).substr(0, 5) + " s (XPULAB_SIM_TIMEOUT)"
                         : "cannot go on";
        for (size_t rank : blamed) text += "; " + describe(rank);
        refuse(text + ". " + awaited.others);
      }
      look = std::min(now + kSlice, start + limit_);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(look - now);
    bell.sleep(seen, std::max(left, std::chrono::milliseconds(1)));
  }
}

bool Group::ended(size_t rank) const {
  const uint32_t presence = slot(rank).presence.load();
  return presence == kLeft || (presence == kHere && !slot(rank).process.alive());
}

Group::Awaited Group::roll(const std::function<bool(const Slot&)>& has_come) const {
  Awaited awaited;
  std::vector<size_t> arrived;
  for (size_t rank = 0; rank < ranks_; ++rank) (has_come(slot(rank)) ? arrived : awaited.ranks).push_back(rank);
  awaited.others = "Arrived: " + numbers(arrived) + ". Not arrived: " + numbers(awaited.ranks) + ".";
  return awaited;
}

std::string Group::describe(size_t rank) const {
  const Slot& other = slot(rank);
  const std::string text = "rank " + std::to_string(rank);
  const uint32_t presence = other.presence.load();
  if (presence == kAbsent) return text + " has not joined";
  const std::string process = " (process " + std::to_string(other.process.id) + ")";
  const std::string last = ", last seen: " + read_text(other.doing);
  if (presence == kLeft) return text + process + " has left the communicator" + last;
  const char state = other.process.state();
  if (state == '\0') return text + process + " has died" + last;
  return text + process + " is alive (state " + state + ")" + last;
}

std::string Group::where() const {
  return current + " on communicator " + name_.brief() + ", rank " + std::to_string(rank_) + " of " + std::to_string(ranks_);
}

void Group::doing(const std::string& what) {
  const std::lock_guard<std::mutex> lock(writing_);
  write_text(slot(rank_).doing, what);
}

void Group::stop_if_failed() const {
  if (header_->failed.load() != 2) return;
  throw Failure(where() + ": the communicator has failed: [" + read_text(header_->failure) + "]");
}

void Group::refuse(const std::string& why) {
  const std::string text = where() + ": " + why;
  fail(text);
  throw Failure(text);
}

void Group::fail(const std::string& why) noexcept {
  uint32_t fine = 0;
  if (!header_->failed.compare_exchange_strong(fine, 1)) return;
  write_text(header_->failure, why);
  header_->failed.store(2);
  header_->joining.ring();
  header_->meeting.ring();
  for (Slot& other : header_->slots) other.bell.ring();
}

// ---- collectives ---------------------------------------------------------------------------------------------------

uint64_t Group::post() {
  const std::lock_guard<std::mutex> lock(posting_);
  return collectives_->posted++;
}

void Group::check(Type type, size_t root) {
  try {
    reduce::size_of(type);
  } catch (const reduce::Meaningless& error) {
    refuse(error.what());
  }
  if (root >= ranks_) refuse("rank " + std::to_string(root) + " does not exist");
}

void Group::barrier() {
  slot(rank_).barriers.store(++barriers_);
  const uint64_t arrived = header_->arrivals.fetch_add(1) + 1;
  if (arrived % ranks_ == 0) {
    header_->generation.store(static_cast<uint32_t>(arrived / ranks_));
    header_->meeting.ring();
    return;
  }
  const auto reached = [this](uint32_t number) { return static_cast<int32_t>(number - barriers_) >= 0; };
  wait(
      header_->meeting, [this, &reached] { return reached(header_->generation.load()); },
      [this, &reached] { return roll([&reached](const Slot& other) { return reached(other.barriers.load()); }); });
}

void Group::compare() {
  const Call& first = slot(0).calls[calls_ % 2];
  bool same = true;
  for (size_t rank = 1; rank < ranks_; ++rank) {
    const Call& call = slot(rank).calls[calls_ % 2];
    same = same && call.kind == first.kind && call.number == first.number && call.type == first.type && call.op == first.op &&
           call.root == first.root && call.count == first.count;
  }
  for (size_t from = 0; same && first.kind == Kind::kAllToAll && from < ranks_; ++from) {
    for (size_t to = 0; same && to < ranks_; ++to) {
      const Call& sender = slot(from).calls[calls_ % 2];
      const Call& receiver = slot(to).calls[calls_ % 2];
      same = sender.send[to] == receiver.receive[from] &&
             (sender.send[to] == 0 || sender.send_type[to] == receiver.receive_type[from]);
    }
  }
  if (same) return;
  std::vector<std::pair<std::string, std::vector<size_t>>> asked;  // each call, and the ranks that made it
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const std::string text = text_of(slot(rank).calls[calls_ % 2], ranks_);
    const auto known = std::find_if(asked.begin(), asked.end(), [&text](const auto& entry) { return entry.first == text; });
    if (known != asked.end()) {
      known->second.push_back(rank);
    } else {
      asked.push_back({text, {rank}});
    }
  }
  std::string text =
      "the ranks called different things (collective number " + std::to_string(calls_) + " of this communicator)";
  for (const auto& [call, by] : asked) text += std::string("; rank") + (by.size() > 1 ? "s " : " ") + numbers(by) + ": " + call;
  refuse(text);
}

void Group::run(uint64_t turn, Call call, const Step& write, const Rounds& rounds, const Step& read) {
  current = text_of(call, ranks_);
  stop_if_failed();
  wait(
      slot(rank_).bell, [this, turn] { return collectives_->done.load() == turn; },
      [this] { return Awaited{{rank_}, "An earlier collective of this rank, on another stream, has not been done."}; });
  doing(current + ", number " + std::to_string(calls_));
  call.number = calls_;
  slot(rank_).calls[calls_ % 2] = call;
  size_t total = 1;
  for (size_t round = 0; round < total; ++round) {
    const size_t half = chunks_++ % 2;
    write(round, half);
    barrier();
    if (round == 0) {
      compare();
      total = std::max<size_t>(1, rounds());
    }
    read(round, half);
  }
  doing("finished " + current + ", number " + std::to_string(calls_));
  ++calls_;
  collectives_->done.fetch_add(1);
  slot(rank_).bell.ring();
}

void Group::reduce_all(uint64_t turn, const Call& call, const void* send, void* receive, bool wanted) {
  const size_t width = reduce::size_of(call.type);
  const size_t most = share_ / width;  // elements of a round
  const auto length = [&call, most](size_t round) { return std::min<uint64_t>(most, call.count - round * most); };
  const auto write = [=](size_t round, size_t half) {
    if (call.count > 0) copy(area(half, rank_), at(send, round * most * width), length(round) * width);
  };
  const auto read = [=](size_t round, size_t half) {
    if (call.count == 0) return;
    const size_t now = length(round);
    const void* sources[kMaxRanks];
    char* results = at(receive, round * most * width);
    if (now * width <= kSmall) {
      for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank);
      if (wanted) reduce::combine(call.type, call.op, sources, ranks_, results, now);
      return;
    }
    // Every rank adds up its slice of the round for all: into its own share, where nobody else reads that slice.
    const auto bound = [now, this](size_t rank) { return now * rank / ranks_; };
    const size_t offset = bound(rank_) * width;
    for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank) + offset;
    reduce::combine(call.type, call.op, sources, ranks_, area(half, rank_) + offset, bound(rank_ + 1) - bound(rank_));
    barrier();
    if (!wanted) return;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const size_t start = bound(rank) * width;
      copy(results + start, area(half, rank) + start, bound(rank + 1) * width - start);
    }
  };
  run(turn, call, write, [&] { return (call.count + most - 1) / most; }, read);
}

void Group::all_reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op) {
  check(type);
  Call call;
  call.kind = Kind::kAllReduce;
  call.type = type;
  call.op = op;
  call.count = count;
  reduce_all(turn, call, send, receive, true);
}

void Group::reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op, size_t root) {
  check(type, root);
  Call call;
  call.kind = Kind::kReduce;
  call.type = type;
  call.op = op;
  call.count = count;
  call.root = static_cast<uint32_t>(root);
  reduce_all(turn, call, send, receive, rank_ == root);
}

void Group::broadcast(uint64_t turn, void* data, size_t count, Type type, size_t root) {
  check(type, root);
  Call call;
  call.kind = Kind::kBroadcast;
  call.type = type;
  call.count = count;
  call.root = static_cast<uint32_t>(root);
  const size_t bytes = count * reduce::size_of(type);
  const size_t most = share_ * ranks_;  // the root has the shares of all
  const auto step = [=](size_t round) { return std::min(most, bytes - round * most); };
  const auto write = [=](size_t round, size_t half) {
    if (rank_ == root && bytes > 0) copy(area(half, 0), at(data, round * most), step(round));
  };
  const auto read = [=](size_t round, size_t half) {
    if (rank_ != root && bytes > 0) copy(at(data, round * most), area(half, 0), step(round));
  };
  run(turn, call, write, [=] { return (bytes + most - 1) / most; }, read);
}

void Group::all_gather(uint64_t turn, const void* send, void* receive, size_t count, Type type) {
  check(type);
  Call call;
  call.kind = Kind::kAllGather;
  call.type = type;
  call.count = count;
  const size_t bytes = count * reduce::size_of(type);
  const auto step = [=](size_t round) { return std::min(share_, bytes - round * share_); };
  const auto write = [=](size_t round, size_t half) {
    if (bytes > 0) copy(area(half, rank_), at(send, round * share_), step(round));
  };
  const auto read = [=](size_t round, size_t half) {
    for (size_t rank = 0; bytes > 0 && rank < ranks_; ++rank) {
      copy(at(receive, rank * bytes + round * share_), area(half, rank), step(round));
    }
  };
  run(turn, call, write, [=] { return (bytes + share_ - 1) / share_; }, read);
}

void Group::reduce_scatter(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op) {
  check(type);
  Call call;
  call.kind = Kind::kReduceScatter;
  call.type = type;
  call.op = op;
  call.count = count;
  const size_t width = reduce::size_of(type);
  const size_t part = share_ / ranks_ / kAlignment * kAlignment;  // of a share, for one of the ranks
  const size_t most = part / width;
  const auto length = [=](size_t round) { return std::min(most, count - round * most); };
  const auto write = [=](size_t round, size_t half) {
    for (size_t rank = 0; count > 0 && rank < ranks_; ++rank) {
      copy(area(half, rank_) + rank * part, at(send, (rank * count + round * most) * width), length(round) * width);
    }
  };
  const auto read = [=](size_t round, size_t half) {
    if (count == 0) return;
    const void* sources[kMaxRanks];
    for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank) + rank_ * part;
    reduce::combine(type, op, sources, ranks_, at(receive, round * most * width), length(round));
  };
  run(turn, call, write, [=] { return (count + most - 1) / most; }, read);
}

void Group::all_to_all(uint64_t turn, const void* const* send, const size_t* send_count, const Type* send_type,
                       void* const* receive, const size_t* receive_count, const Type* receive_type) {
  Call call;
  call.kind = Kind::kAllToAll;
  size_t out[kMaxRanks], in[kMaxRanks];  // bytes
  for (size_t rank = 0; rank < ranks_; ++rank) {
    check(send_type[rank]);
    check(receive_type[rank]);
    call.send[rank] = send_count[rank];
    call.send_type[rank] = send_type[rank];
    call.receive[rank] = receive_count[rank];
    call.receive_type[rank] = receive_type[rank];
    out[rank] = send_count[rank] * reduce::size_of(send_type[rank]);
    in[rank] = receive_count[rank] * reduce::size_of(receive_type[rank]);
  }
  const size_t part = share_ / ranks_ / kAlignment * kAlignment;
  const auto step = [part](size_t bytes, size_t round) {
    return bytes > round * part ? std::min(part, bytes - round * part) : 0;
  };
  const auto write = [&](size_t round, size_t half) {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const size_t now = step(out[rank], round);
      if (now > 0) copy(area(half, rank_) + rank * part, at(send[rank], round * part), now);
    }
  };
  const auto read = [&](size_t round, size_t half) {
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const size_t now = step(in[rank], round);
      if (now > 0) copy(at(receive[rank], round * part), area(half, rank) + rank_ * part, now);
    }
  };
  const auto rounds = [&] {  // of the longest part of any two ranks: all must meet as often
    size_t most = 0;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const Call& other = slot(rank).calls[calls_ % 2];
      for (size_t to = 0; to < ranks_; ++to) {
        const size_t bytes = other.send[to] * reduce::size_of(other.send_type[to]);
        most = std::max(most, (bytes + part - 1) / part);
      }
    }
    return most;
  };
  run(turn, call, write, rounds, read);
}

// ---- messages ------------------------------------------------------------------------------------------------------

void Group::post(std::vector<Message>& messages) {
  const std::lock_guard<std::mutex> lock(posting_);
  for (Message& message : messages) {
    current = text_of(message);
    check(message.type, message.peer);
    message.turn = (message.outgoing ? outgoing_ : incoming_)[message.peer].posted++;
  }
}

void Group::exchange(const std::vector<Message>& messages) {
  if (messages.empty()) return;
  current = text_of(messages[0]);
  for (size_t other = 1; other < messages.size() && other < 4; ++other) current += " + " + text_of(messages[other]);
  if (messages.size() > 4) current += " and " + std::to_string(messages.size() - 4) + " more";
  stop_if_failed();
  doing(current);
  std::list<Transfer> transfers;
  for (const Message& message : messages) {
    transfers.push_back({message, message.count * reduce::size_of(message.type), 0, false, false, {}, 0});
  }
  const auto progress = [&] {
    bool any = false;
    for (Transfer& transfer : transfers) {
      if (!transfer.finished) any = (transfer.message.outgoing ? step_out(transfer) : step_in(transfer)) || any;
    }
    return any;
  };
  const auto expected = [](const Transfer& transfer) { return !transfer.finished && !transfer.message.outgoing; };
  const auto senders = [&] {
    Awaited awaited;
    for (const Transfer& transfer : transfers) {
      if (!expected(transfer)) continue;
      const auto known = std::find(awaited.ranks.begin(), awaited.ranks.end(), transfer.message.peer);
      if (known == awaited.ranks.end()) awaited.ranks.push_back(transfer.message.peer);
      awaited.others += text_of(transfer.message) + ": " + std::to_string(std::min(transfer.passed, transfer.bytes)) + " of " +
                        std::to_string(transfer.bytes) + " bytes have come. ";
    }
    return awaited;
  };
  progress();
  while (std::any_of(transfers.begin(), transfers.end(), expected)) wait(slot(rank_).bell, progress, senders);
  for (Transfer& transfer : transfers) {
    if (!transfer.finished) hand_over(transfer);
  }
  doing("finished " + current);
}

// Copies what is left, and leaves it to the carrier. A message of an earlier turn which the carrier has keeps its place:
// this one's turn comes after it.
void Group::hand_over(Transfer& transfer) {
  transfer.rest_from = transfer.passed;
  transfer.rest.resize(aligned(transfer.bytes) - transfer.passed + kAlignment);  // never empty
  copy(transfer.rest.data(), at(static_cast<const void*>(transfer.message.data), transfer.passed),
       transfer.bytes - std::min(transfer.bytes, transfer.passed));
  const std::lock_guard<std::mutex> lock(carrying_);
  undelivered_.fetch_add(1);
  to_carry_.push_back(std::move(transfer));
  if (!carrier_.joinable()) carrier_ = std::thread([this] { carry(); });
  slot(rank_).bell.ring();
}

// It may wait as long as the receiver likes, since nobody waits for it: only a receiver that is gone ends it.
void Group::carry() {
  std::list<Transfer> carried;
  Bell& bell = slot(rank_).bell;
  while (true) {
    const uint32_t seen = bell.count.load();
    if (closing_.load()) return;
    {
      const std::lock_guard<std::mutex> lock(carrying_);
      carried.splice(carried.end(), to_carry_);
    }
    bool any = false;
    for (auto transfer = carried.begin(); transfer != carried.end();) {
      any = step_out(*transfer) || any;
      const bool finished = transfer->finished;
      const bool useless = !any && !finished && ended(transfer->message.peer);
      if (useless) {
        fail(text_of(transfer->message) + " on communicator " + name_.brief() + ", rank " + std::to_string(rank_) + " of " +
             std::to_string(ranks_) + ": not received; " + describe(transfer->message.peer));
      }
      if (finished || useless || header_->failed.load() == 2) {
        transfer = carried.erase(transfer);
        undelivered_.fetch_sub(1);
      } else {
        ++transfer;
      }
    }
    if (any) continue;
    // With nothing to deliver only the bell can bring something; else a receiver may end without ringing it.
    bell.sleep(seen, carried.empty() ? std::chrono::milliseconds(60000) : kSlice);
  }
}

bool Group::deliver() {
  if (::getpid() != owner_) return true;
  const Clock::time_point until = Clock::now() + limit_;
  Bell& bell = slot(rank_).bell;
  while (is_delivering() && Clock::now() < until) {
    const uint32_t seen = bell.count.load();
    if (is_delivering()) bell.sleep(seen, std::chrono::milliseconds(20));
  }
  return !is_delivering();
}

void Group::has_moved(Transfer& transfer, Lane& lane) {
  slot(transfer.message.peer).bell.ring();
  transfer.finished = transfer.passed == aligned(transfer.bytes);
  if (!transfer.finished) return;
  lane.done.fetch_add(1);
  slot(rank_).bell.ring();
}

bool Group::step_out(Transfer& transfer) {
  const Message& message = transfer.message;
  Lane& lane = outgoing_[message.peer];
  if (lane.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[rank_][message.peer];
  char* ring = mailbox(rank_, message.peer);
  uint64_t written = mail.written.load();
  size_t room = mail_ - (written - mail.read.load());
  const size_t whole = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && room > 0) {
    const Head head{message.count, static_cast<uint32_t>(message.type), 0};
    std::memcpy(ring + written % mail_, &head, sizeof head);
    written += sizeof head;
    room -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && room > 0 && transfer.passed < whole) {
    const size_t offset = written % mail_;
    const size_t now = std::min({room, whole - transfer.passed, mail_ - offset});
    copy(ring + offset, transfer.source(), std::min(now, transfer.bytes - transfer.passed));
    written += now;
    room -= now;
    transfer.passed += now;
    moved = true;
  }
  if (!moved) return false;
  mail.written.store(written);
  has_moved(transfer, lane);
  return true;
}

bool Group::step_in(Transfer& transfer) {
  const Message& message = transfer.message;
  Lane& lane = incoming_[message.peer];
  if (lane.done.load() != message.turn) return false;
  Mailbox& mail = header_->mail[message.peer][rank_];
  const char* ring = mailbox(message.peer, rank_);
  uint64_t read = mail.read.load();
  size_t there = mail.written.load() - read;
  const size_t whole = aligned(transfer.bytes);
  bool moved = false;
  if (!transfer.started && there > 0) {
    Head head;
    std::memcpy(&head, ring + read % mail_, sizeof head);
    if (head.count != message.count || head.type != static_cast<uint32_t>(message.type)) {
      refuse("rank " + std::to_string(message.peer) + " called send(" + elements(head.count, static_cast<Type>(head.type)) +
             ", to rank " + std::to_string(rank_) + "), rank " + std::to_string(rank_) + " called " + text_of(message));
    }
    read += sizeof head;
    there -= sizeof head;
    transfer.started = moved = true;
  }
  while (transfer.started && there > 0 && transfer.passed < whole) {
    const size_t offset = read % mail_;
    const size_t now = std::min({there, whole - transfer.passed, mail_ - offset});
    copy(at(message.data, transfer.passed), ring + offset, std::min(now, transfer.bytes - transfer.passed));
    read += now;
    there -= now;
    transfer.passed += now;
    moved = true;
  }
  if (!moved) return false;
  mail.read.store(read);
  has_moved(transfer, lane);
  return true;
}

}  // namespace sim::shm
