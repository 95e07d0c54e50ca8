// Creating, joining and leaving a communicator; removing the segments of runs that crashed.
#include <unistd.h>

#include <algorithm>
#include <new>

#include "shm_state.h"

namespace sim::shm {
namespace {

size_t share_bytes(size_t ranks) { return ranks <= 4 ? 128 << 10 : 64 << 10; }
size_t mailbox_bytes(size_t ranks) { return ranks <= 4 ? 64 << 10 : ranks <= 8 ? 16 << 10 : 8 << 10; }

}  // namespace

std::string make_id() {
  remove_stale();
  const Name name = Name::next();
  Group::create(name);
  return name.text();
}

void remove_stale(const std::string& except) {
  for (const Name& name : names_present()) {
    if (name.text() == except || name.creator_alive() || Group::has_living_rank(name)) continue;
    unlink(name);
  }
}

void Group::create(const Name& name) {
  Segment segment = Segment::create(name, sizeof(Header));
  new (segment.data()) Header;
}

bool Group::has_living_rank(const Name& name) {
  try {
    const Segment segment = Segment::open(name, false);
    if (segment.size() < sizeof(Header)) return false;
    const auto* header = reinterpret_cast<const Header*>(segment.data());
    return std::any_of(std::begin(header->slots), std::end(header->slots),
                       [](const Slot& slot) { return slot.membership.load() == kJoined && slot.process.alive(); });
  } catch (const Failure&) {
    return false;  // removed in the meantime
  }
}

Group::Group(const std::string& id, size_t ranks, size_t rank, double seconds)
    : id_(id),
      name_(Name::parse(id)),
      ranks_(ranks),
      rank_(rank),
      timeout_(static_cast<int64_t>(seconds * 1000)),
      segment_((remove_stale(id), Segment::open(name_))),
      collectives_(new Turns),
      outgoing_(new Turns[kMostRanks]),
      incoming_(new Turns[kMostRanks]) {
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
  share_bytes_ = share_bytes(ranks);
  mailbox_bytes_ = mailbox_bytes(ranks);
  try {
    join();
  } catch (const std::exception& error) {
    fail(error.what());
    unlink(name_);
    throw;
  }
  unlink(name_);
  set_activity("no call yet");
}

Group::~Group() {
  if (::getpid() != owner_) {  // a forked child, which does not have the rank's threads
    if (delivery_thread_.joinable()) delivery_thread_.detach();
    return;
  }
  deliver();
  leaving_.store(true);
  slot(rank_).changed.notify();
  if (delivery_thread_.joinable()) delivery_thread_.join();
  set_activity("destroyed the communicator");
  slot(rank_).membership.store(kLeft);
}

void Group::join() {
  current_call = "comm_init_rank";
  throw_if_failed();
  uint32_t state_new = kNew;
  if (header_->state.compare_exchange_strong(state_new, kResizing)) {
    header_->ranks.store(static_cast<uint32_t>(ranks_));
    segment_.grow(sizeof(Header) + 2 * ranks_ * share_bytes_ + ranks_ * ranks_ * mailbox_bytes_);
    header_ = reinterpret_cast<Header*>(segment_.data());
    header_->state.store(kReady);
    header_->join_changed.notify();
  }
  const auto sized = [this] { return header_->state.load() == kReady; };
  wait(header_->join_changed, sized,
       [] { return Missing{{}, "The rank that joined first has not finished resizing the segment."}; });
  if (header_->ranks.load() != ranks_) {
    fail_and_throw("the ranks disagree about their number: " + std::to_string(ranks_) + " on this rank, " +
                   std::to_string(header_->ranks.load()) + " on the rank that joined first");
  }
  segment_.map_all();
  header_ = reinterpret_cast<Header*>(segment_.data());
  Slot& own = slot(rank_);
  uint32_t absent = kAbsent;
  if (!own.membership.compare_exchange_strong(absent, kJoining)) {
    fail_and_throw("two processes joined as rank " + std::to_string(rank_) + ", " + std::to_string(own.process.id) + " and " +
                   std::to_string(::getpid()));
  }
  own.process = Process::self();
  set_activity(current_call);
  own.membership.store(kJoined);
  header_->joined.fetch_add(1);
  header_->join_changed.notify();
  const auto all_joined = [this] { return header_->joined.load() == ranks_; };
  // A rank that has joined and died is missing too: it will not take part in any call.
  const auto has_arrived = [](const Slot& other) { return other.membership.load() == kJoined && other.process.alive(); };
  wait(header_->join_changed, all_joined, [this, &has_arrived] { return not_arrived(has_arrived); });
}

Group::Slot& Group::slot(size_t rank) const { return header_->slots[rank]; }

char* Group::area(size_t half, size_t rank) const {
  return segment_.data() + sizeof(Header) + (half * ranks_ + rank) * share_bytes_;
}

char* Group::mailbox(size_t from, size_t to) const { return area(2, 0) + (from * ranks_ + to) * mailbox_bytes_; }

}  // namespace sim::shm
