// The lists of kernels for half types, for files that do not include Paddle's headers of kernels.
#pragma once

#include <string>

namespace sim::half {

// Whether this process asked for half types: XPULAB_SIM_HALF=1.
bool is_wanted();

// Add the kernels of one list to the CPU of this process. Call each once, after Paddle has registered its own.
void add_pointwise();
void add_arrays();
void add_training();
void add_optimizers();

// All kernels that were wanted, by line "NAME TYPE added CALLS" or "NAME TYPE skipped: WHY".
std::string report();

// Why a kernel with one input and one output could not be added under this name; "" when it could. For tests.
std::string why_not_of_one_tensor(const char* name);

}  // namespace sim::half
