// Carrying out the steps of a reshard on a card: its pieces are copied there, and sent with the collectives of the plug-in.
#pragma once

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <cstdint>
#include <vector>

#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/distributed/auto_parallel/process_mesh.h"

#include "kernels.h"
#include "reshard_plan.h"

namespace sim::reshard {

// The dimensions of this rank's block of a tensor. dims: of the whole tensor. cut: as in Placed.
std::vector<int64_t> local_dims(const phi::distributed::ProcessMesh& mesh, std::vector<int64_t> dims,
                                const std::vector<std::vector<int64_t>>& cut);

// What this rank of the mesh `to` gets from the rank at the same place of the mesh `from`; nothing on other ranks. value: what
// this rank holds in `from`, contiguous; on a rank outside of it only its type is used. dims, cut: as above.
phi::DenseTensor sent_to_other_ranks(const phi::CustomContext& context, const phi::DenseTensor& value,
                                     const phi::distributed::ProcessMesh& from, const phi::distributed::ProcessMesh& to,
                                     const std::vector<int64_t>& dims, const std::vector<std::vector<int64_t>>& cut);

// What this rank holds of a tensor while it is resharded.
class Held {
 public:
  // dims: of the whole tensor. cut: as in Placed. value: what this rank holds; its elements must be contiguous.
  Held(const phi::CustomContext& context, const phi::distributed::ProcessMesh& mesh, std::vector<int64_t> dims,
       std::vector<std::vector<int64_t>> cut, phi::DenseTensor value);

  // Throws sim::Error for a way to combine summands that cards do not have.
  void apply(const Step& step);
  const phi::DenseTensor& value() const { return value_; }

 private:
  struct Along;  // an axis of the mesh, seen from this rank

  Along along(int64_t axis) const;
  // The size of a dimension in this rank's block, as it is cut now.
  int64_t size(int64_t dim) const;
  phi::DenseTensor allocate(const std::vector<int64_t>& dims) const;
  // The value's dimensions with another size of this one.
  std::vector<int64_t> dims_with(int64_t dim, int64_t size) const;
  // Copies elements [start, start + count) of dimension `dim` to those that begin at `to_start`.
  void copy_part(const kernels::Block& from, int64_t start, int64_t count, int64_t dim, const kernels::Block& to,
                 int64_t to_start) const;

  void reduce(const Step& step);
  void reduce_to_part(const Step& step);
  void gather(const Step& step);
  void exchange(const Step& step);
  void cut(const Step& step);
  void to_summands(const Step& step);
  // Divides the value by the number of its summands, for an average.
  void divide(int64_t by);

  const phi::CustomContext& context_;
  const phi::distributed::ProcessMesh& mesh_;
  const std::vector<int64_t> dims_;
  std::vector<std::vector<int64_t>> cut_;
  phi::DenseTensor value_;
};

}  // namespace sim::reshard
