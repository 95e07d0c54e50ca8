// Reshard of tensors on simulated cards. Paddle's own functions end with "only supported on CPU for now" on every custom device
// of the CPU wheel (seen with 3.3.1: RESHARD_FUNCTOR_IMPL). Paddle asks a list of functions which one is suitable; the plug-in
// puts its own in front.
#include "reshard.h"

#include "reshard_data.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paddle/phi/backends/context_pool.h"
#include "paddle/phi/core/distributed/auto_parallel/dist_tensor.h"
#include "paddle/phi/core/distributed/auto_parallel/reshard/reshard_function.h"
#include "paddle/phi/core/distributed/auto_parallel/reshard/reshard_function_registry.h"
#include "paddle/phi/core/distributed/auto_parallel/reshard/reshard_utils.h"

#include "error.h"
#include "kernels.h"

namespace sim {
namespace {

using phi::distributed::DistTensor;
using phi::distributed::TensorDistAttr;

bool is_simulated(const phi::Place& place) {
  return place.GetType() == phi::AllocationType::CUSTOM && place.GetDeviceType() == "sim";
}

reshard::Placed placed(const TensorDistAttr& attribute) {
  reshard::Placed found;
  found.cut = attribute.multi_dims_mapping();
  for (auto& axes : found.cut) {
    std::vector<int64_t> real;
    for (const int64_t axis : axes) {
      if (axis >= 0) real.push_back(axis);
    }
    axes = real;
  }
  for (const auto& [axis, op] : attribute.partial_status()) found.partial[axis] = op;
  return found;
}

// To a mesh of other ranks, of the same shape. The placements stay as they are.
class ToOtherRanks final : public phi::distributed::ReshardFunction {
 public:
  bool IsSuitable(const DistTensor& in, const TensorDistAttr& wanted) override {
    if (!in.has_allocation() || !is_simulated(in.value().place())) return false;
    const reshard::Placed now = placed(in.dist_attr()), then = placed(wanted);
    return in.process_mesh() != wanted.process_mesh() && in.process_mesh().shape() == wanted.process_mesh().shape() &&
           now.cut == then.cut && now.partial == then.partial;
  }

  void Eval(phi::DeviceContext*, const DistTensor& in, const TensorDistAttr& wanted, DistTensor* out) override {
    auto* context = static_cast<phi::CustomContext*>(phi::DeviceContextPool::Instance().Get(in.value().place()));
    guarded([&] {
      const bool holds = phi::distributed::IsCurRankInMesh(in.process_mesh());
      const phi::DenseTensor received = reshard::sent_to_other_ranks(
          *context, holds ? kernels::contiguous(*context, in.value()) : in.value(), in.process_mesh(), wanted.process_mesh(),
          common::vectorize<int64_t>(in.dims()), placed(wanted).cut);
      context->Wait();
      const bool gets = phi::distributed::IsCurRankInMesh(wanted.process_mesh());
      // As Paddle does: a rank that gets nothing holds no memory, but a place, which autograd asks for.
      const auto nothing = std::make_shared<phi::Allocation>(nullptr, 0, in.value().place());
      SetValue(out, gets ? received : phi::DenseTensor(nothing, phi::DenseTensorMeta(in.dtype(), in.dims())));
      SetDistProps(out, in.dims(), wanted);
    });
  }

  std::string Name() override { return "ReshardToOtherSimulatedCards"; }
};

// On one mesh, from any placement to any other.
class OnSimulatedCards final : public phi::distributed::ReshardFunction {
 public:
  bool IsSuitable(const DistTensor& in, const TensorDistAttr& wanted) override {
    if (!in.has_allocation()) return false;
    return is_simulated(in.value().place()) && in.process_mesh() == wanted.process_mesh() &&
           phi::distributed::IsCurRankInMesh(in.process_mesh());
  }

  void Eval(phi::DeviceContext*, const DistTensor& in, const TensorDistAttr& wanted, DistTensor* out) override {
    auto* context = static_cast<phi::CustomContext*>(phi::DeviceContextPool::Instance().Get(in.value().place()));
    guarded([&] {
      if (in.value().numel() > 0 && in.value().Holder()->size() == 0) return set_without_numbers(in, wanted, out);
      const reshard::Placed now = placed(in.dist_attr());
      reshard::Held held(*context, in.process_mesh(), common::vectorize<int64_t>(in.dims()), now.cut,
                         kernels::contiguous(*context, in.value()));
      for (const reshard::Step& step : reshard::plan(now, placed(wanted))) held.apply(step);
      // Paddle's CPU kernels, which follow, read the memory of a card without waiting for its streams.
      context->Wait();
      SetValue(out, held.value());
      SetDistProps(out, in.dims(), wanted);
    });
  }

  std::string Name() override { return "ReshardOnSimulatedCards"; }

 private:
  // Paddle drops the numbers of a tensor that a gradient needs for its shape only.
  void set_without_numbers(const DistTensor& in, const TensorDistAttr& wanted, DistTensor* out) {
    phi::DenseTensorMeta meta = in.value().meta();
    meta.dims =
        common::make_ddim(reshard::local_dims(in.process_mesh(), common::vectorize<int64_t>(in.dims()), placed(wanted).cut));
    meta.strides = meta.calc_strides(meta.dims);
    SetValue(out, phi::DenseTensor(in.value().Holder(), meta));
    SetDistProps(out, in.dims(), wanted);
  }
};

}  // namespace

void add_reshard() {
  auto& functions = phi::distributed::GetReshardFunctionList();
  functions.insert(functions.begin(), std::make_unique<OnSimulatedCards>());
  functions.insert(functions.begin(), std::make_unique<ToOtherRanks>());
}

}  // namespace sim
