// The protocol of a collective: turns, rounds, the barrier, the comparison of the ranks' calls.
//
// A collective is done in rounds. In each round every rank writes its chunk into its share of one half, enters the barrier,
// and reads what the others wrote. Rounds alternate between the halves: before a rank writes to a half again, it has passed
// the barrier of the round between, which all ranks enter after they have read that half. So one barrier a round is enough.
#include <algorithm>
#include <utility>

#include "shm_state.h"

namespace sim::shm {

uint64_t Group::post() {
  const std::lock_guard<std::mutex> lock(posting_mutex_);
  return collectives_->posted++;
}

void Group::check(Type type, size_t root) {
  try {
    reduce::size_of(type);
  } catch (const reduce::InvalidReduction& error) {
    fail_and_throw(error.what());
  }
  if (root >= ranks_) fail_and_throw("rank " + std::to_string(root) + " does not exist");
}

Call Group::checked(Kind kind, Type type, size_t count, Op op, size_t root) {
  check(type, root);
  Call call;
  call.kind = kind;
  call.type = type;
  call.op = op;
  call.root = static_cast<uint32_t>(root);
  call.count = count;
  return call;
}

void Group::barrier() {
  slot(rank_).barriers.store(++barriers_);
  const uint64_t arrived = header_->arrivals.fetch_add(1) + 1;
  if (arrived % ranks_ == 0) {
    header_->generation.store(static_cast<uint32_t>(arrived / ranks_));
    header_->barrier_changed.notify();
    return;
  }
  const auto reached = [this](uint32_t number) { return static_cast<int32_t>(number - barriers_) >= 0; };
  wait(
      header_->barrier_changed, [this, &reached] { return reached(header_->generation.load()); },
      [this, &reached] { return not_arrived([&reached](const Slot& other) { return reached(other.barriers.load()); }); });
}

void Group::compare_calls() {
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
  std::vector<std::pair<std::string, std::vector<size_t>>> calls;  // each call with its ranks
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const std::string text = text_of(slot(rank).calls[calls_ % 2], ranks_);
    const auto known = std::find_if(calls.begin(), calls.end(), [&text](const auto& entry) { return entry.first == text; });
    if (known != calls.end()) {
      known->second.push_back(rank);
    } else {
      calls.push_back({text, {rank}});
    }
  }
  std::string text =
      "the ranks called different collectives (collective number " + std::to_string(calls_) + " of this communicator)";
  for (const auto& [call, by] : calls) text += std::string("; rank") + (by.size() > 1 ? "s " : " ") + numbers(by) + ": " + call;
  fail_and_throw(text);
}

void Group::run(uint64_t turn, Call call, const Step& write, const Rounds& rounds, const Step& read) {
  current_call = text_of(call, ranks_);
  throw_if_failed();
  wait(
      slot(rank_).changed, [this, turn] { return collectives_->done.load() == turn; },
      [this] { return Missing{{rank_}, "An earlier collective of this rank, on another stream, is not finished."}; });
  set_activity(current_call + ", number " + std::to_string(calls_));
  call.number = calls_;
  slot(rank_).calls[calls_ % 2] = call;
  size_t total = 1;
  for (size_t round = 0; round < total; ++round) {
    const size_t half = chunks_++ % 2;
    write(round, half);
    barrier();
    if (round == 0) {
      compare_calls();
      total = std::max<size_t>(1, rounds());
    }
    read(round, half);
  }
  set_activity("finished " + current_call + ", number " + std::to_string(calls_));
  ++calls_;
  collectives_->done.fetch_add(1);
  slot(rank_).changed.notify();
}

}  // namespace sim::shm
