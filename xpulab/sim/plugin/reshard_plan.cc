// See reshard_plan.h.
#include "reshard_plan.h"

#include <cstddef>

namespace sim::reshard {
namespace {

// The number of axes, from the outermost on, along which the dimension stays cut.
size_t kept(const std::vector<int64_t>& now, const std::vector<int64_t>& wanted) {
  size_t same = 0;
  while (same < now.size() && same < wanted.size() && now[same] == wanted[same]) ++same;
  return same;
}

// The dimension that can be cut along this axis next to reach `wanted`; -1 when there is none yet.
int64_t next_cut_along(int64_t axis, const Placed& now, const Placed& wanted) {
  for (size_t dim = 0; dim < now.cut.size(); ++dim) {
    const size_t same = kept(now.cut[dim], wanted.cut[dim]);
    if (now.cut[dim].size() == same && wanted.cut[dim].size() > same && wanted.cut[dim][same] == axis) return dim;
  }
  return -1;
}

void combine_summands(Placed& now, const Placed& wanted, std::vector<Step>& steps) {
  for (auto each = now.partial.begin(); each != now.partial.end();) {
    const auto [axis, op] = *each;
    const auto stays = wanted.partial.find(axis);
    if (stays != wanted.partial.end() && stays->second == op) {
      ++each;
      continue;
    }
    const int64_t dim = next_cut_along(axis, now, wanted);
    steps.push_back({dim < 0 ? Move::kReduce : Move::kReduceToPart, axis, dim, -1, op});
    if (dim >= 0) now.cut[dim].push_back(axis);
    each = now.partial.erase(each);
  }
}

void gather_parts(Placed& now, const Placed& wanted, std::vector<Step>& steps) {
  for (size_t dim = 0; dim < now.cut.size(); ++dim) {
    while (now.cut[dim].size() > kept(now.cut[dim], wanted.cut[dim])) {
      const int64_t axis = now.cut[dim].back(), other = next_cut_along(axis, now, wanted);
      now.cut[dim].pop_back();
      if (other < 0) {
        steps.push_back({Move::kGather, axis, static_cast<int64_t>(dim)});
      } else {
        steps.push_back({Move::kExchange, axis, other, static_cast<int64_t>(dim)});
        now.cut[other].push_back(axis);
      }
    }
  }
}

}  // namespace

std::vector<Step> plan(Placed now, const Placed& wanted) {
  std::vector<Step> steps;
  combine_summands(now, wanted, steps);
  gather_parts(now, wanted, steps);
  for (size_t dim = 0; dim < now.cut.size(); ++dim) {
    for (size_t each = now.cut[dim].size(); each < wanted.cut[dim].size(); ++each) {
      steps.push_back({Move::kCut, wanted.cut[dim][each], static_cast<int64_t>(dim)});
    }
  }
  for (const auto& [axis, op] : wanted.partial) {
    if (now.partial.count(axis) == 0) steps.push_back({Move::kToSummands, axis, -1, -1, op});
  }
  return steps;
}

}  // namespace sim::reshard
