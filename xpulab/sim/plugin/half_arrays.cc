// Kernels of half types that move, choose and count elements. See half.h.
#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include "half.h"

namespace sim::half {
namespace {

// The gradient of x[index]. The strides of what is indexed and the offset are in bytes, which are twice as
// many for float32; those of the other dimensions are in elements.
template <DataType half>
struct GradientOfIndexing {
  using Signature = Function<In, Ins, In, Longs, Longs, Longs, Longs, int64_t, bool, bool, Out>;
  static inline Single single;

  static void function(const phi::CPUContext& context, In input, Ins index, In out_grad, Longs dims, Longs strides,
                       Longs index_dims, Longs index_strides, int64_t offset, bool accumulate, bool is_combined,
                       Out input_grad) {
    constexpr int64_t times = sizeof(float) / sizeof(uint16_t);
    const auto of_single = [](std::vector<int64_t> bytes) {
      for (int64_t& each : bytes) each *= times;
      return bytes;
    };
    call<In, Ins, In, Longs, Longs, Longs, Longs, int64_t, bool, bool, Out>(
        single, context, half, {}, input, index, out_grad, dims, strides, index_dims, of_single(index_strides), offset * times,
        accumulate, is_combined, input_grad);
  }

  static void compute(phi::KernelContext* context) { phi::KernelImpl<Signature*, &function>::Compute(context); }
};

template <DataType half>
void add_gradient_of_indexing() {
  using Gradient = GradientOfIndexing<half>;
  add({"index_elementwise_get_grad", half, Gradient::compute, reinterpret_cast<void*>(Gradient::function), &Gradient::single,
       phi::KernelArgsParseFunctor<typename Gradient::Signature*>::Parse});
}

}  // namespace

void add_arrays() {
  kernels<In, In, Out>({"gather_nd", "index_sample", "kron"});
  kernels<In, int, Out>({"tril", "tril_grad", "triu", "triu_grad"});
  kernels<In, In, In, Out>({"gather_nd_grad", "index_sample_grad", "scatter_nd_add"});
  kernels<In, In, In, int, Out>({"index_add", "index_select_grad", "take_along_axis_grad"});
  kernels<In, In, int, Out>({"diag_grad", "index_select", "take_along_axis"});
  kernels<In, int, int, int, Out>({"diag_embed", "diagonal", "trace"});
  kernels<In, In, In, Out, Out>({"kron_grad", "scatter_nd_add_grad"});
  kernels<In, In, int, int, int, Out>({"diagonal_grad", "trace_grad"});
  kernels<In, Integers, Out>({"tile", "unsqueeze"});
  kernels<In, Ints, Number, Out>({"pad", "pad_grad"});
  kernels<In, Number, bool, bool, DataType, Out>({"argmax", "argmin"});
  kernels<In, float, int, bool, Out>({"fill_diagonal", "fill_diagonal_grad"});
  kernels<In, In, In, In, In, int, Text, bool, Out, Out>({"put_along_axis_grad"});
  kernels<In, In, In, Number, Out>({"gather_grad"});
  kernels<In, In, In, Number, int, bool, bool, Out>({"topk_grad"});
  kernels<In, In, In, bool, Out>({"scatter"});
  kernels<In, In, In, bool, Out, Out>({"scatter_grad"});
  kernels<In, In, In, int, Out, Out>({"index_add_grad"});
  kernels<In, In, In, int, Text, bool, Out>({"put_along_axis"});
  kernels<In, In, Integers, Longs, Out>({"roll_grad"});
  kernels<In, In, Integers, Out>({"tile_grad"});
  kernels<In, In, Ints, Integers, Integers, Integers, Out>({"strided_slice_grad"});
  kernels<In, In, Longs, Out>({"expand_as_grad"});
  kernels<In, In, Number, Out>({"gather"});
  kernels<In, In, int, int, int64_t, Out>({"repeat_interleave_grad"});
  kernels<In, Integers, Longs, Out>({"roll"});
  kernels<In, Ints, Out>({"flip"});
  kernels<In, Maybe, Longs, Out>({"expand_as"});
  kernels<In, Number, int, bool, bool, Out, Out>({"topk"});
  kernels<In, Out>({"nonzero"});
  kernels<In, int, float, Out>({"diag"});
  kernels<In, int, int, Outs>({"unstack"});
  kernels<In, int, int, int64_t, Out>({"repeat_interleave"});
  kernels<Ins, In, Number, Outs>({"concat_grad"});
  kernels<In, Ins, In, bool, Out>({"index_put"});
  add_gradient_of_indexing<DataType::BFLOAT16>();
  add_gradient_of_indexing<DataType::FLOAT16>();
  kernels<Ins, Ins, Outs>({"meshgrid_grad"});
  kernels<Ins, Outs>({"meshgrid"});
  kernels<Ins, int, Out>({"unstack_grad"});
}

}  // namespace sim::half
