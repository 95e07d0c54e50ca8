// Kernels of half types for products, sums, norms and losses. See half.h.
#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include "half.h"

namespace sim::half {
namespace {

// The float32 kernel of the gradient of cross entropy, with one more ability. Of bfloat16 logits Paddle keeps the softmax in
// float32, so it takes the float32 kernel for the gradient, and wants it to write bfloat16: Paddle's for the CPU refuses.
template <typename... A>
struct OfSingle {
  static inline Single single;
  static constexpr phi::KernelArgsParseFn parse = phi::KernelArgsParseFunctor<Function<A...>*>::Parse;

  static void function(const phi::CPUContext& context, A... arguments) {
    const phi::DenseTensor* gradient = std::get<sizeof...(A) - 1>(std::tuple<A...>(arguments...));
    const bool is_half = gradient->dtype() == DataType::BFLOAT16 || gradient->dtype() == DataType::FLOAT16;
    if (is_half) return call<A...>(single, context, gradient->dtype(), {}, arguments...);
    reinterpret_cast<Function<A...>*>(single.function)(context, std::forward<A>(arguments)...);
  }

  static void compute(phi::KernelContext* context) { phi::KernelImpl<Function<A...>*, &function>::Compute(context); }
};

}  // namespace

void add_training() {
  kernels<In, In, Out>({"bce_loss", "bmm", "dot", "mean_all_grad", "squared_l2_norm_grad"});
  kernels<In, In, In, Integers, bool, bool, Out>({"frobenius_norm_grad", "max_grad", "min_grad", "prod_grad"});
  kernels<In, Longs, bool, Out>({"all", "amax", "amin", "any"});
  kernels<In, Integers, bool, Out>({"max", "mean", "min"});
  kernels<In, In, In, Longs, bool, bool, Out>({"amax_grad", "amin_grad"});
  kernels<In, In, In, Out, Out>({"bmm_grad", "dot_grad"});
  kernels<In, In, In, int, DataType, Out>({"cummax_grad", "cummin_grad"});
  kernels<In, In, float, Out, Out>({"huber_loss", "huber_loss_grad"});
  kernels<In, In, int, Out>({"log_softmax_grad", "softmax_grad"});
  kernels<In, Integers, bool, bool, Out>({"frobenius_norm", "prod"});
  kernels<In, Longs, bool, bool, double, Out>({"std", "var"});
  kernels<In, Out>({"mean_all", "squared_l2_norm"});
  kernels<In, int, DataType, Out, Out>({"cummax", "cummin"});
  kernels<In, int, Out>({"log_softmax", "softmax"});
  kernels<In, In, In, In, float, Out, Out>({"dist_grad"});
  kernels<In, In, In, In, float, float, Out, Out, Out>({"addmm_grad"});
  kernels<In, In, In, Integers, Longs, Longs, bool, bool, Text, Text, bool, bool, Text, Out>({"pool2d_grad"});
  kernels<In, In, In, Ints, Ints, Ints, Integers, Text, int, Ints, Text, Out, Out>({"conv2d_transpose_grad"});
  kernels<In, In, In, Ints, Ints, Ints, bool, bool, bool, Out>({"max_pool2d_with_index_grad"});
  kernels<In, In, In, Ints, Ints, Text, Ints, int, Text, Out, Out>({"conv2d_grad"});
  kernels<In, In, In, Ints, Ints, Text, int, Ints, Text, Out, Out>({"depthwise_conv2d_grad"});
  kernels<In, In, In, Ints, bool, bool, Out>({"logsumexp_grad"});
  kernels<In, In, In, Maybe, Maybe, bool, float, float, Text, bool, bool, Out, Out, Out, Out, Out, Out>({"batch_norm"});
  kernels<In, In, In, Out>({"bce_loss_grad"});
  kernels<In, In, In, Text, bool, Out>({"kldiv_loss_grad"});
  kernels<In, In, In, bool, bool, Out, Out>({"matmul_grad"});
  kernels<In, In, In, float, float, Out>({"addmm"});
  kernels<In, In, In, float, int, float, bool, bool, Out>({"p_norm_grad"});
  kernels<In, In, In, int, bool, bool, Out>({"cumprod_grad"});
  kernels<In, In, In, int, bool, bool, bool, Out>({"logcumsumexp_grad"});
  kernels<In, In, Integers, bool, bool, Out>({"mean_grad"});
  kernels<In, In, Ints, Ints, Ints, Integers, Text, int, Ints, Text, Out>({"conv2d_transpose"});
  kernels<In, In, Ints, Ints, Text, Ints, int, Text, Out>({"conv2d"});
  kernels<In, In, Ints, Ints, Text, int, Ints, Text, Out>({"depthwise_conv2d"});
  kernels<In, In, Maybe, In, In, int64_t, Text, Out>({"nll_loss_grad"});
  kernels<In, In, Maybe, In, bool, int, Out>({"sigmoid_cross_entropy_with_logits_grad"});
  kernels<In, In, Maybe, bool, int, Out>({"sigmoid_cross_entropy_with_logits"});
  kernels<In, In, Maybe, int64_t, Text, Out, Out>({"nll_loss"});
  kernels<In, In, Number, bool, bool, bool, Out>({"cumsum_grad"});
  kernels<In, In, Text, bool, Out>({"kldiv_loss"});
  kernels<In, In, bool, bool, Out>({"matmul"});
  kernels<In, In, bool, bool, bool, int, int, Out, Out>({"cross_entropy_with_softmax"});
  kernels<In, In, float, Out>({"dist"});
  kernels<In, Integers, Longs, Longs, bool, bool, Text, Text, bool, bool, Text, Out>({"pool2d"});
  kernels<In, Ints, Ints, Ints, bool, bool, bool, Out, Out>({"max_pool2d_with_index"});
  kernels<In, Ints, bool, bool, Out>({"logsumexp"});
  kernels<In, Maybe, Maybe, In, In, In, In, double, int, Text, Out, Out, Out>({"group_norm_grad"});
  kernels<In, Maybe, Maybe, In, In, In, float, int, Out, Out, Out>({"layer_norm_grad"});
  kernels<In, Maybe, Maybe, Maybe, Maybe, In, In, Maybe, In, float, float, Text, bool, bool, bool, Out, Out, Out>(
      {"batch_norm_grad"});
  kernels<In, Maybe, Maybe, double, int, Text, Out, Out, Out>({"group_norm"});
  kernels<In, Maybe, Maybe, float, int, Out, Out, Out>({"layer_norm"});
  kernels<In, Number, bool, bool, bool, Out>({"cumsum"});
  kernels<In, float, Out>({"clip_by_norm"});
  kernels<In, float, int, float, bool, bool, Out>({"p_norm"});
  kernels<In, int, bool, bool, Out>({"cumprod"});
  kernels<In, int, bool, bool, bool, Out>({"logcumsumexp"});
  kernels<Ins, In, In, In, In, int, int, float, float, Number, Outs, Out, Out, Out>({"update_loss_scaling"});
  kernels<Ins, In, Outs, Out>({"check_finite_and_unscale"});
  using OfLogits = OfSingle<In, In, In, bool, bool, bool, int, int, Out>;
  add({"cross_entropy_with_softmax_grad", DataType::FLOAT32, OfLogits::compute, reinterpret_cast<void*>(OfLogits::function),
       &OfLogits::single, OfLogits::parse});
  constexpr const char* kGradient[] = {"cross_entropy_with_softmax_grad"};
  add_slots<DataType::FLOAT16, -1, -1, In, In, In, bool, bool, bool, int, int, Out>(kGradient, std::make_index_sequence<1>());
}

}  // namespace sim::half
