// Making a communicator, joining it, leaving it; removing segments that crashed runs left.
#include <unistd.h>

#include <algorithm>
#include <new>

#include "shm_state.h"

namespace sim::shm {
namespace {

size_t share_bytes(size_t ranks) { return ranks <= 4 ? 128 << 10 : 64 << 10; }
size_t mail_bytes(size_t ranks) { return ranks <= 4 ? 64 << 10 : ranks <= 8 ? 16 << 10 : 8 << 10; }

}  // namespace

std::string make_id() {
  remove_stale();
  const Name name = Name::next();
  Group::make(name);
  return name.text();
}

void remove_stale(const std::string& except) {
  for (const Name& name : names_present()) {
    if (name.text() == except || name.creator_alive() || Group::joined_by_living(name)) continue;
    unlink(name);
  }
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
      outgoing_(new Lane[kMostRanks]),
      incoming_(new Lane[kMostRanks]) {
  if (ranks < 1 || ranks > kMostRanks) {
    throw Failure("a simulated communicator has 1 to " + std::to_string(kMostRanks) + " ranks, not " + std::to_string(ranks));
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

}  // namespace sim::shm
