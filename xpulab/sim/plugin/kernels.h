// Kernels of a card, for other files than kernels.cc. Include it after paddle/phi/config.h.
#pragma once

#include <cstddef>
#include <functional>

#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/core/dense_tensor.h"

namespace sim::kernels {

// Queues a kernel that handles `work` bytes, and waits for it on the default stream. A fault may flip a bit of the first
// `result` bytes at `data`. kind: one of those of site "launch" in xpulab/sim/faults.py.
void launch(const phi::CustomContext& context, const char* kind, void* data, size_t result, size_t work,
            std::function<void()> body);

// The tensor itself, or a copy whose elements are contiguous.
phi::DenseTensor contiguous(const phi::CustomContext& context, const phi::DenseTensor& input);

}  // namespace sim::kernels
