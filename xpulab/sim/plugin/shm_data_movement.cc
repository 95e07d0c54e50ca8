// The collectives that only move data: broadcast, all_gather, all_to_all.
#include <algorithm>

#include "shm_state.h"

namespace sim::shm {

void Group::broadcast(uint64_t turn, void* data, size_t count, Type type, size_t root) {
  const Call call = checked(Kind::kBroadcast, type, count, Op::kSum, root);
  const size_t bytes = count * reduce::size_of(type);
  const size_t most = share_bytes_ * ranks_;  // the root uses the shares of all ranks
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
  const Call call = checked(Kind::kAllGather, type, count);
  const size_t bytes = count * reduce::size_of(type);
  const auto step = [=](size_t round) { return std::min(share_bytes_, bytes - round * share_bytes_); };
  const auto write = [=](size_t round, size_t half) {
    if (bytes > 0) copy(area(half, rank_), at(send, round * share_bytes_), step(round));
  };
  const auto read = [=](size_t round, size_t half) {
    for (size_t rank = 0; bytes > 0 && rank < ranks_; ++rank) {
      copy(at(receive, rank * bytes + round * share_bytes_), area(half, rank), step(round));
    }
  };
  run(turn, call, write, [=] { return (bytes + share_bytes_ - 1) / share_bytes_; }, read);
}

void Group::all_to_all(uint64_t turn, const void* const* send, const size_t* send_count, const Type* send_type,
                       void* const* receive, const size_t* receive_count, const Type* receive_type) {
  Call call;
  call.kind = Kind::kAllToAll;
  size_t out[kMostRanks], in[kMostRanks];  // bytes
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
  const size_t part = share_bytes_ / ranks_ / kAlignment * kAlignment;
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
  const auto rounds = [&] {  // of the longest part of any pair of ranks: all ranks need the same number of rounds
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

}  // namespace sim::shm
