// The collectives that combine the values of all ranks: all_reduce, reduce, reduce_scatter.
#include <algorithm>

#include "shm_state.h"

namespace sim::shm {
namespace {

constexpr size_t kSmallBytes = 2048;  // up to this size every rank reduces everything itself

}  // namespace

void Group::reduce_all(uint64_t turn, const Call& call, const void* send, void* receive, bool keep_result) {
  const size_t width = reduce::size_of(call.type);
  const size_t most = share_bytes_ / width;  // elements of a round
  const auto length = [&call, most](size_t round) { return std::min<uint64_t>(most, call.count - round * most); };
  const auto write = [=](size_t round, size_t half) {
    if (call.count > 0) copy(area(half, rank_), at(send, round * most * width), length(round) * width);
  };
  const auto read = [=](size_t round, size_t half) {
    if (call.count == 0) return;
    const size_t now = length(round);
    const void* sources[kMostRanks];
    char* results = at(receive, round * most * width);
    if (now * width <= kSmallBytes) {
      for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank);
      if (keep_result) reduce::combine(call.type, call.op, sources, ranks_, results, now);
      return;
    }
    // Every rank reduces its slice of the round for all ranks, into its own share: no other rank reads that slice there.
    const auto bound = [now, this](size_t rank) { return now * rank / ranks_; };
    const size_t offset = bound(rank_) * width;
    for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank) + offset;
    reduce::combine(call.type, call.op, sources, ranks_, area(half, rank_) + offset, bound(rank_ + 1) - bound(rank_));
    barrier();
    if (!keep_result) return;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      const size_t start = bound(rank) * width;
      copy(results + start, area(half, rank) + start, bound(rank + 1) * width - start);
    }
  };
  run(turn, call, write, [&] { return (call.count + most - 1) / most; }, read);
}

void Group::all_reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op) {
  reduce_all(turn, checked(Kind::kAllReduce, type, count, op), send, receive, true);
}

void Group::reduce(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op, size_t root) {
  reduce_all(turn, checked(Kind::kReduce, type, count, op, root), send, receive, rank_ == root);
}

void Group::reduce_scatter(uint64_t turn, const void* send, void* receive, size_t count, Type type, Op op) {
  const Call call = checked(Kind::kReduceScatter, type, count, op);
  const size_t width = reduce::size_of(type);
  const size_t part = share_bytes_ / ranks_ / kAlignment * kAlignment;  // of a share, for one of the ranks
  const size_t most = part / width;
  const auto length = [=](size_t round) { return std::min(most, count - round * most); };
  const auto write = [=](size_t round, size_t half) {
    for (size_t rank = 0; count > 0 && rank < ranks_; ++rank) {
      copy(area(half, rank_) + rank * part, at(send, (rank * count + round * most) * width), length(round) * width);
    }
  };
  const auto read = [=](size_t round, size_t half) {
    if (count == 0) return;
    const void* sources[kMostRanks];
    for (size_t rank = 0; rank < ranks_; ++rank) sources[rank] = area(half, rank) + rank_ * part;
    reduce::combine(type, op, sources, ranks_, at(receive, round * most * width), length(round));
  };
  run(turn, call, write, [=] { return (count + most - 1) / most; }, read);
}

}  // namespace sim::shm
