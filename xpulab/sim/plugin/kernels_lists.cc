// Operators that take or give a list of tensors. If the CPU computed them, Paddle would cut the parts of a distributed tensor a
// second time while it copies a list to the host (PrepareDataForDistTensor), and leave the results of split on the CPU where an
// operator of the old kind is traced: fleet fills the weights with it (sync_params_buffers). Both were seen with 3.3.1.

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <cstring>
#include <vector>

#include "paddle/phi/common/int_array.h"
#include "paddle/phi/common/scalar.h"
#include "paddle/phi/core/kernel_registry.h"

#include "kernels.h"

namespace sim::kernels {
namespace {

int64_t not_negative(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

}  // namespace

Block block_of(const phi::DenseTensor& tensor) {
  return {static_cast<char*>(const_cast<void*>(tensor.data())), common::vectorize<int64_t>(tensor.dims())};
}

void copy_part(const phi::CustomContext& context, size_t element, const Block& from, int64_t start, int64_t count, int64_t dim,
               const Block& to, int64_t to_start) {
  int64_t outer = 1, inner = element;
  for (int64_t each = 0; each < dim; ++each) outer *= from.dims[each];
  for (size_t each = dim + 1; each < from.dims.size(); ++each) inner *= from.dims[each];
  const size_t run = count * inner, bytes = outer * run;
  if (bytes == 0) return;
  const int64_t from_run = from.dims[dim] * inner, to_run = to.dims[dim] * inner;
  const char* source = from.data + start * inner;
  char* target = to.data + to_start * inner;
  launch(context, "strided_copy", target, run, bytes, [=] {
    for (int64_t each = 0; each < outer; ++each) std::memcpy(target + each * to_run, source + each * from_run, run);
  });
}

template <typename T, typename Context>
void Concat(const Context& context, const std::vector<const phi::DenseTensor*>& inputs, const phi::Scalar& axis,
            phi::DenseTensor* out) {
  context.template Alloc<T>(out);
  const int64_t dim = not_negative(axis.to<int64_t>(), out->dims().size());
  int64_t start = 0;
  for (const phi::DenseTensor* input : inputs) {
    if (input->numel() == 0) continue;
    const int64_t count = input->dims()[dim];
    copy_part(context, sizeof(T), block_of(*input), 0, count, dim, block_of(*out), start);
    start += count;
  }
}

template <typename T, typename Context>
void ConcatGrad(const Context& context, const std::vector<const phi::DenseTensor*>& inputs, const phi::DenseTensor& out_grad,
                const phi::Scalar& axis, std::vector<phi::DenseTensor*> input_grads) {
  const int64_t dim = not_negative(axis.to<int64_t>(), out_grad.dims().size());
  int64_t start = 0;
  for (size_t each = 0; each < inputs.size(); ++each) {
    const int64_t count = inputs[each]->numel() == 0 ? 0 : inputs[each]->dims()[dim];
    phi::DenseTensor* grad = input_grads[each];
    if (grad != nullptr) {
      grad->Resize(inputs[each]->dims());
      context.template Alloc<T>(grad);
      if (count > 0) copy_part(context, sizeof(T), block_of(out_grad), start, count, dim, block_of(*grad), 0);
    }
    start += count;
  }
}

template <typename T, typename Context>
void Stack(const Context& context, const std::vector<const phi::DenseTensor*>& inputs, int axis, phi::DenseTensor* out) {
  context.template Alloc<T>(out);
  const int64_t dim = not_negative(axis, out->dims().size());
  for (size_t each = 0; each < inputs.size(); ++each) {
    if (inputs[each]->numel() == 0) continue;
    Block one = block_of(*inputs[each]);
    one.dims.insert(one.dims.begin() + dim, 1);
    copy_part(context, sizeof(T), one, 0, 1, dim, block_of(*out), each);
  }
}

template <typename T, typename Context>
void SplitWithNum(const Context& context, const phi::DenseTensor& input, int, const phi::Scalar& axis,
                  std::vector<phi::DenseTensor*> outs) {
  const int64_t dim = not_negative(axis.to<int64_t>(), input.dims().size());
  const phi::DenseTensor whole = contiguous(context, input);
  int64_t start = 0;
  for (phi::DenseTensor* out : outs) {
    context.template Alloc<T>(out);
    const int64_t count = out->dims()[dim];
    if (out->numel() > 0) copy_part(context, sizeof(T), block_of(whole), start, count, dim, block_of(*out), 0);
    start += count;
  }
}

template <typename T, typename Context>
void Split(const Context& context, const phi::DenseTensor& input, const phi::IntArray&, const phi::Scalar& axis,
           std::vector<phi::DenseTensor*> outs) {
  SplitWithNum<T, Context>(context, input, static_cast<int>(outs.size()), axis, outs);
}

}  // namespace sim::kernels

PD_REGISTER_PLUGIN_KERNEL(concat, sim, ALL_LAYOUT, sim::kernels::Concat, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(concat_grad, sim, ALL_LAYOUT, sim::kernels::ConcatGrad, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(stack, sim, ALL_LAYOUT, sim::kernels::Stack, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(split, sim, ALL_LAYOUT, sim::kernels::Split, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(split_with_num, sim, ALL_LAYOUT, sim::kernels::SplitWithNum, XPULAB_ALL_TYPES) {}
