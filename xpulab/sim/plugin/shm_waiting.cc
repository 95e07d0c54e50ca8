// Waiting for other ranks, and failing a communicator for all of them.
#include <algorithm>
#include <iterator>

#include "shm_state.h"

namespace sim::shm {
namespace {

constexpr int kSpins = 64;         // looks at the word before sleeping: some microseconds

}  // namespace

thread_local std::string current = "comm_init_rank";

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

}  // namespace sim::shm
