// How a tensor of one placement becomes one of another: movements along one axis of the mesh after another. No data here.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "paddle/phi/common/reduce_type.h"

namespace sim::reshard {

// Where a tensor is. cut: for each dimension the axes of the mesh along which it is cut, the outermost first. partial: the axes
// along which each rank holds a summand, and how the summands are combined.
struct Placed {
  std::vector<std::vector<int64_t>> cut;
  std::map<int64_t, phi::ReduceType> partial;
};

enum class Move {
  kReduce,        // summands to the whole, on every rank: an all-reduce
  kReduceToPart,  // summands to a part of it: a reduce-scatter
  kGather,        // parts to the whole: an all-gather
  kExchange,      // parts of one dimension to parts of another: an all-to-all
  kCut,           // the whole to a part: nothing is sent
  kToSummands,    // the whole to summands: nothing is sent
};

// One movement along an axis. dim: the dimension that is gathered or cut. from: the one that kExchange gathers. op: how
// summands are combined.
struct Step {
  Move move;
  int64_t axis;
  int64_t dim = -1;
  int64_t from = -1;
  phi::ReduceType op = phi::ReduceType::kRedSum;
};

std::vector<Step> plan(Placed now, const Placed& wanted);

// The size of each part but the last ones when `whole` elements are cut into this many parts: rounded up.
inline int64_t part_size(int64_t whole, int64_t parts) { return (whole + parts - 1) / parts; }

// The size of the part with this number, which may be 0.
inline int64_t size_of_part(int64_t whole, int64_t parts, int64_t number) {
  const int64_t size = part_size(whole, parts), left = whole - number * size;
  return left < 0 ? 0 : left < size ? left : size;
}

}  // namespace sim::reshard
