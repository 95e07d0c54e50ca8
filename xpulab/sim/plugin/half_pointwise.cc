// Kernels of half types that compute each element by itself. See half.h.
#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include "half.h"

namespace sim::half {

void add_pointwise() {
  kernels<In, In, Out>({"abs_grad",        "acos_grad",    "acosh_grad",  "add",
                        "asin_grad",       "asinh_grad",   "atan2",       "atan_grad",
                        "atanh_grad",      "cos_grad",     "cosh_grad",   "divide",
                        "elementwise_pow", "erf_grad",     "erfinv_grad", "exp_grad",
                        "expm1_grad",      "fmax",         "fmin",        "hardswish_grad",
                        "lgamma_grad",     "log10_grad",   "log1p_grad",  "log2_grad",
                        "log_grad",        "logical_and",  "logical_or",  "logical_xor",
                        "logsigmoid_grad", "maximum",      "minimum",     "multiply",
                        "reciprocal_grad", "relu6_grad",   "relu_grad",   "remainder",
                        "rsqrt_grad",      "sigmoid_grad", "sin_grad",    "sinh_grad",
                        "softsign_grad",   "sqrt_grad",    "square_grad", "subtract",
                        "swish_grad",      "tan_grad",     "tanh_grad",   "tanh_shrink_grad"});
  kernels<In, Out>({"abs",        "acos",        "acosh",  "asin",      "asinh",      "atan",      "atanh",   "cos",
                    "cosh",       "erf",         "erfinv", "exp",       "expm1",      "hardswish", "lgamma",  "logical_not",
                    "logsigmoid", "reciprocal",  "relu",   "relu6",     "round_grad", "rsqrt",     "sigmoid", "sign",
                    "silu",       "sin",         "sinh",   "softsign",  "sqrt",       "square",    "swish",   "tan",
                    "tanh",       "tanh_shrink", "trunc",  "trunc_grad"});
  kernels<In, In, In, Out, Out>(
      {"atan2_grad", "elementwise_pow_grad", "fmax_grad", "fmin_grad", "maximum_grad", "minimum_grad", "remainder_grad"});
  kernels<In, In, float, float, Out>({"hardsigmoid_grad", "hardtanh_grad", "selu_grad", "stanh_grad", "thresholded_relu_grad"});
  kernels<In, float, Out>({"celu", "elu", "hard_shrink", "mish", "softshrink"});
  kernels<In, float, float, Out>({"hardsigmoid", "hardtanh", "selu", "stanh", "thresholded_relu"});
  kernels<In, In, float, Out>({"celu_grad", "hard_shrink_grad", "mish_grad", "softshrink_grad"});
  kernels<In, In, In, int, Out, Out>({"add_grad", "multiply_grad", "subtract_grad"});
  kernels<In, In, In, Out>({"silu_grad", "where"});
  kernels<In, In, Number, Number, bool, Out>({"allclose", "isclose"});
  kernels<In, In, double, Out>({"leaky_relu_grad", "logit_grad"});
  kernels<In, double, Out>({"leaky_relu", "logit"});
  kernels<In, In, In, In, Out, Out>({"where_grad"});
  kernels<In, In, In, In, int, Out, Out>({"divide_grad"});
  kernels<In, In, In, float, Out>({"elu_grad"});
  kernels<In, In, Number, Number, Out>({"clip_grad"});
  kernels<In, In, Number, Out>({"pow_grad"});
  kernels<In, In, bool, Out>({"gelu_grad"});
  kernels<In, In, double, double, Out>({"softplus_grad"});
  kernels<In, Maybe, In, Out, Out>({"swiglu_grad"});
  kernels<In, Maybe, Out>({"swiglu"});
  kernels<In, Number, Number, Out>({"clip"});
  kernels<In, Number, Out>({"pow"});
  kernels<In, bool, Out>({"gelu"});
  kernels<In, double, double, Out>({"softplus"});
  kernels<In, int, Out>({"round"});
}

}  // namespace sim::half
