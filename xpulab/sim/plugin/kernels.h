// Kernels of a card, for other files than kernels.cc. Include it after paddle/phi/config.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/core/dense_tensor.h"

namespace sim::kernels {

// Queues a kernel that handles `work` bytes, and waits for it on the default stream. A fault may flip a bit of the first
// `result` bytes at `data`. kind: one of those of site "launch" in xpulab/sim/faults.py.
void launch(const phi::CustomContext& context, const char* kind, void* data, size_t result, size_t work,
            std::function<void()> body);

// The tensor itself, or a copy whose elements are contiguous.
phi::DenseTensor contiguous(const phi::CustomContext& context, const phi::DenseTensor& input);

// Contiguous elements on a card.
struct Block {
  char* data;
  std::vector<int64_t> dims;
};

Block block_of(const phi::DenseTensor& tensor);

// Copies the elements [start, start + count) of dimension `dim` to those that begin at `to_start`; all other dimensions are
// equal. element: bytes of one.
void copy_part(const phi::CustomContext& context, size_t element, const Block& from, int64_t start, int64_t count, int64_t dim,
               const Block& to, int64_t to_start);

}  // namespace sim::kernels

#define XPULAB_ALL_TYPES                                                                                      \
  bool, uint8_t, int8_t, int16_t, int, int64_t, float, double, ::phi::dtype::float16, ::phi::dtype::bfloat16, \
      ::phi::dtype::float8_e4m3fn, ::phi::dtype::float8_e5m2, ::phi::dtype::complex<float>, ::phi::dtype::complex<double>
