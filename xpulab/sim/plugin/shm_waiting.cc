// Waiting for other ranks, and failing a communicator for all of them.
#include <algorithm>
#include <iterator>

#include "shm_state.h"

namespace sim::shm {
namespace {

constexpr int kSpins = 64;  // how often the condition is checked before sleeping: some microseconds

}  // namespace

thread_local std::string current_call = "comm_init_rank";

void Group::wait(Notifier& changed, const Condition& ready, const FindMissing& find_missing) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return;
  }
  const Clock::time_point start = Clock::now();
  Clock::time_point next_check = start + std::min(kCheckInterval, timeout_);
  while (true) {
    const uint32_t seen = changed.count.load();
    if (ready()) return;
    throw_if_failed();
    const Clock::time_point now = Clock::now();
    if (now >= next_check) {
      const Missing missing = find_missing();
      std::vector<size_t> ended;
      std::copy_if(missing.ranks.begin(), missing.ranks.end(), std::back_inserter(ended),
                   [this](size_t rank) { return has_ended(rank); });
      if (ready()) return;  // it arrived before it ended
      if (!ended.empty() || now - start >= timeout_) {
        const std::vector<size_t>& named = ended.empty() ? missing.ranks : ended;
        std::string text = ended.empty() ? "timed out after " + std::to_string(timeout_.count() / 1000.0).substr(0, 5) +
                                               " s (XPULAB_SIM_TIMEOUT)"
                                         : "cannot continue";
        for (size_t rank : named) text += "; " + describe(rank);
        fail_and_throw(text + ". " + missing.details);
      }
      next_check = std::min(now + kCheckInterval, start + timeout_);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next_check - now);
    changed.wait(seen, std::max(left, std::chrono::milliseconds(1)));
  }
}

bool Group::has_ended(size_t rank) const {
  const uint32_t membership = slot(rank).membership.load();
  return membership == kLeft || (membership == kJoined && !slot(rank).process.alive());
}

Group::Missing Group::not_arrived(const std::function<bool(const Slot&)>& has_arrived) const {
  Missing missing;
  std::vector<size_t> arrived;
  for (size_t rank = 0; rank < ranks_; ++rank) (has_arrived(slot(rank)) ? arrived : missing.ranks).push_back(rank);
  missing.details = "Arrived: " + numbers(arrived) + ". Not arrived: " + numbers(missing.ranks) + ".";
  return missing;
}

std::string Group::describe(size_t rank) const {
  const Slot& other = slot(rank);
  const std::string text = "rank " + std::to_string(rank);
  const uint32_t membership = other.membership.load();
  if (membership == kAbsent) return text + " has not joined";
  const std::string process = " (process " + std::to_string(other.process.id) + ")";
  const std::string last = ", last call: " + read_text(other.activity);
  if (membership == kLeft) return text + process + " has left the communicator" + last;
  const char state = other.process.state();
  if (state == '\0') return text + process + " has died" + last;
  return text + process + " is alive (state " + state + ")" + last;
}

std::string Group::where() const {
  return current_call + " on communicator " + name_.brief() + ", rank " + std::to_string(rank_) + " of " +
         std::to_string(ranks_);
}

void Group::set_activity(const std::string& activity) {
  const std::lock_guard<std::mutex> lock(activity_mutex_);
  write_text(slot(rank_).activity, activity);
}

void Group::throw_if_failed() const {
  if (header_->failed.load() != 2) return;
  throw Failure(where() + ": the communicator has failed: [" + read_text(header_->failure) + "]");
}

void Group::fail_and_throw(const std::string& why) {
  const std::string text = where() + ": " + why;
  fail(text);
  throw Failure(text);
}

void Group::fail(const std::string& why) noexcept {
  uint32_t not_failed = 0;
  if (!header_->failed.compare_exchange_strong(not_failed, 1)) return;
  write_text(header_->failure, why);
  header_->failed.store(2);
  header_->join_changed.notify();
  header_->barrier_changed.notify();
  for (Slot& other : header_->slots) other.changed.notify();
}

}  // namespace sim::shm
