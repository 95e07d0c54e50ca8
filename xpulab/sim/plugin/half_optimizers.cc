// Optimizers of weights of half types, with a float32 copy of the weights or without. See half.h.
#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include "half.h"

namespace sim::half {

void add_optimizers() {
  // The first two numbers are those of the float32 copy of the weights, as in Master.
  optimizers<5, 3, In, In, In, In, In, Maybe, float, float, bool, Out, Out, Out, Out>({"adadelta"});
  optimizers<4, 2, In, In, In, In, Maybe, float, bool, Out, Out, Out>({"adagrad"});
  optimizers<8, 6, In, In, In, In, In, Maybe, In, In, Maybe, Maybe, Number, Number, Number, bool, int64_t, bool, bool, bool,
             Out, Out, Out, Out, Out, Out, Out>({"adam"});
  optimizers<6, 3, In, In, In, In, In, In, Maybe, float, float, float, bool, Out, Out, Out, Out>({"adamax"});
  optimizers<8, 6, In, In, In, In, In, Maybe, In, In, Maybe, Maybe, Number, Number, Number, float, float, bool, bool, int64_t,
             bool, bool, bool, Out, Out, Out, Out, Out, Out, Out>({"adamw"});
  optimizers<7, 5, In, In, In, In, In, In, In, Maybe, Maybe, float, float, float, float, bool, bool, Out, Out, Out, Out, Out,
             Out>({"lamb"});
  optimizers<4, 2, In, In, In, In, Maybe, float, bool, Text, float, bool, float, Out, Out, Out>({"momentum"});
  optimizers<8, 6, In, In, In, In, In, In, In, In, Maybe, float, float, float, float, bool, Out, Out, Out, Out, Out, Out, Out>(
      {"nadam"});
  optimizers<8, 6, In, In, In, In, In, In, In, In, Maybe, float, float, float, bool, Out, Out, Out, Out, Out, Out, Out>(
      {"radam"});
  optimizers<4, 3, In, In, In, In, Maybe, In, In, bool, Out, Out, Out, Out>({"rprop"});
  optimizers<3, 1, In, In, In, Maybe, bool, Out, Out>({"sgd"});
}

}  // namespace sim::half
