// The operators that must run on the card: those that read or write the elements of a view, and two that Paddle's fallback
// to the CPU gets wrong. All others have no kernel here: Paddle runs them on the CPU, between two copies.

#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/common/scalar.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_registry.h"

#include "card.h"
#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "kernels.h"
#include "stream.h"

namespace sim::kernels {
namespace {

// The elements of a strided tensor. Strides are in bytes. Dimensions of size 1 are left out, and a dimension that is
// contiguous with the next one is merged with it, so that the innermost run is as long as possible.
struct Layout {
  std::vector<int64_t> dims, source, target;
};

Layout merged(const phi::DDim& dims, const phi::DDim& source, const phi::DDim& target, int64_t element) {
  Layout layout;
  for (int dim = 0; dim < dims.size(); ++dim) {
    const int64_t from = source[dim] * element, to = target[dim] * element;
    if (dims[dim] == 1) continue;
    if (!layout.dims.empty() && layout.source.back() == from * dims[dim] && layout.target.back() == to * dims[dim]) {
      layout.dims.back() *= dims[dim];
      layout.source.back() = from;
      layout.target.back() = to;
    } else {
      layout.dims.push_back(dims[dim]);
      layout.source.push_back(from);
      layout.target.push_back(to);
    }
  }
  if (layout.dims.empty()) return {{1}, {element}, {element}};
  return layout;
}

template <size_t element>
void copy_run(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count) {
  if (from_step == element && to_step == element) {
    std::memmove(to, from, count * element);
    return;
  }
  for (int64_t each = 0; each < count; ++each) std::memcpy(to + each * to_step, from + each * from_step, element);
}

template <size_t element>
void copy_elements(const char* from, char* to, const Layout& layout) {
  const size_t last = layout.dims.size() - 1;
  std::vector<int64_t> index(last, 0);
  while (true) {
    copy_run<element>(from, layout.source[last], to, layout.target[last], layout.dims[last]);
    size_t dim = last;
    for (; dim > 0; --dim) {
      from += layout.source[dim - 1];
      to += layout.target[dim - 1];
      if (++index[dim - 1] < layout.dims[dim - 1]) break;
      from -= layout.source[dim - 1] * layout.dims[dim - 1];
      to -= layout.target[dim - 1] * layout.dims[dim - 1];
      index[dim - 1] = 0;
    }
    if (dim == 0) return;
  }
}

void copy_elements(size_t element, const char* from, char* to, const Layout& layout) {
  switch (element) {
    case 1: return copy_elements<1>(from, to, layout);
    case 2: return copy_elements<2>(from, to, layout);
    case 4: return copy_elements<4>(from, to, layout);
    case 8: return copy_elements<8>(from, to, layout);
    default: return copy_elements<16>(from, to, layout);
  }
}

}  // namespace

void launch(const phi::CustomContext& context, const char* kind, void* data, size_t result, size_t work, Work body) {
  const auto stream = reinterpret_cast<C_Stream>(context.stream());
  const int card = card_of(stream);
  guarded([&] {
    faults::require_present(card);
    enqueue_card_work(stream, work, [=] {
      faults::before("launch", kind, card);
      body();
      faults::after("launch", kind, card, data, result);
      counters::add(card, counters::kLaunches, 1);
    });
    // Paddle's CPU wheel accumulates gradients on the host, wherever they are, and does not synchronize before it reads them
    // (seen with 3.3.1: GradNodeAccumulation). On other streams the caller synchronizes.
    if (is_default_stream(stream)) wait_for(stream);
  });
}

phi::DenseTensor contiguous(const phi::CustomContext& context, const phi::DenseTensor& input) {
  if (input.meta().is_contiguous()) return input;
  phi::DenseTensorMeta meta = input.meta();
  meta.strides = meta.calc_strides(meta.dims);
  meta.offset = 0;
  phi::DenseTensor out;
  out.set_meta(meta);
  const size_t element = phi::SizeOf(input.dtype()), bytes = input.numel() * element;
  auto* to = static_cast<char*>(context.Alloc(&out, input.dtype()));
  if (bytes == 0) return out;
  const auto* from = static_cast<const char*>(input.data());
  const Layout layout = merged(input.dims(), input.strides(), out.strides(), element);
  launch(context, "contiguous", to, bytes, bytes, [=] { copy_elements(element, from, to, layout); });
  return out;
}

template <typename T, typename Context>
void Contiguous(const Context& context, const phi::DenseTensor& input, phi::DenseTensor* out) {
  phi::DenseTensorMeta meta = input.meta();
  meta.strides = meta.calc_strides(meta.dims);
  meta.offset = 0;
  out->set_meta(meta);
  const auto* from = reinterpret_cast<const char*>(input.data<T>());
  auto* to = reinterpret_cast<char*>(context.template Alloc<T>(out));
  const size_t bytes = input.numel() * sizeof(T);
  if (bytes == 0) return;
  const Layout layout = merged(input.dims(), input.strides(), out->strides(), sizeof(T));
  launch(context, "contiguous", to, bytes, bytes, [=] { copy_elements(sizeof(T), from, to, layout); });
}

template <typename T, typename Context>
void StridedCopy(const Context& context, const phi::DenseTensor& input, const std::vector<int64_t>& dims,
                 const std::vector<int64_t>& out_stride, int64_t offset, phi::DenseTensor* out) {
  phi::DenseTensorMeta meta = input.meta();
  meta.dims = common::make_ddim(dims);
  meta.strides = common::make_ddim(out_stride);
  meta.offset = offset;
  out->set_meta(meta);
  const auto* from = reinterpret_cast<const char*>(input.data<T>());
  auto* to = reinterpret_cast<char*>(out->data<T>());
  const size_t bytes = input.numel() * sizeof(T);
  if (bytes == 0) return;
  const Layout layout = merged(input.dims(), input.strides(), out->strides(), sizeof(T));
  // A flipped bit must lie within the tensor, whatever its strides are: in its first element.
  launch(context, "strided_copy", to, sizeof(T), bytes, [=] { copy_elements(sizeof(T), from, to, layout); });
}

template <typename T, typename Context>
void Fill(const Context& context, const phi::DenseTensor&, const phi::Scalar& value, phi::DenseTensor* out) {
  T* to = context.template Alloc<T>(out);
  const T wanted = value.to<T>();
  const int64_t count = out->numel();
  if (count == 0) return;
  launch(context, "fill", to, count * sizeof(T), count * sizeof(T), [=] { std::fill_n(to, count, wanted); });
}

// If the CPU computed it, Paddle would allocate new memory for `out`, and what is written into a view of whole rows would be
// lost (seen with 3.3.1: dist.load_state_dict then leaves every tensor unchanged). As Paddle's own kernel does, it gives
// `out` the input's type.
template <typename T, typename Context>
void Assign(const Context& context, const phi::DenseTensor& input, phi::DenseTensor* out) {
  out->Resize(input.dims());
  const void* from = input.data();
  void* to = context.Alloc(out, input.dtype());
  const size_t bytes = input.numel() * phi::SizeOf(input.dtype());
  if (bytes == 0) return;
  launch(context, "assign", to, bytes, bytes, [=] { std::memmove(to, from, bytes); });
}

// The type in which numbers of type T are added up: a sum of half types is a float32 sum that is rounded once.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Without it Paddle would leave the gradient on the CPU (seen with 3.3.1).
template <typename T, typename Context>
void EmbeddingGrad(const Context& context, const phi::DenseTensor& ids, const phi::DenseTensor& weight,
                   const phi::DenseTensor& out_grad, int64_t padding_idx, phi::DenseTensor* weight_grad) {
  weight_grad->Resize(weight.dims());
  T* to = context.template Alloc<T>(weight_grad);
  const T* from = out_grad.data<T>();
  const int64_t count = ids.numel(), rows = weight.dims()[0], width = weight.dims()[1], all = weight_grad->numel();
  const bool wide = ids.dtype() == phi::DataType::INT64;
  const void* picked = ids.data();
  // It replaces a CPU kernel between two copies, which would wait for all streams. Some callers rely on that: Paddle's
  // pipeline schedules only wait for the last message of a batch (seen with VPP on four ranks).
  guarded([&] { drain(card_number(card_of(reinterpret_cast<C_Stream>(context.stream())))); });
  launch(context, "embedding_grad", to, all * sizeof(T), all * sizeof(T), [=] {
    std::vector<Sum<T>> sums(all, Sum<T>(0));
    const int64_t first = faults::first_term(count);
    for (int64_t term = 0; term < count; ++term) {
      const int64_t each = (first + term) % count;
      const int64_t row = wide ? static_cast<const int64_t*>(picked)[each] : static_cast<const int32_t*>(picked)[each];
      if (row < 0 || row >= rows || row == padding_idx) continue;
      for (int64_t column = 0; column < width; ++column) {
        sums[row * width + column] += static_cast<Sum<T>>(from[each * width + column]);
      }
    }
    for (int64_t each = 0; each < all; ++each) to[each] = static_cast<T>(sums[each]);
  });
}

}  // namespace sim::kernels

PD_REGISTER_PLUGIN_KERNEL(contiguous, sim, ALL_LAYOUT, sim::kernels::Contiguous, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(strided_copy, sim, ALL_LAYOUT, sim::kernels::StridedCopy, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(assign, sim, ALL_LAYOUT, sim::kernels::Assign, XPULAB_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(embedding_grad, sim, ALL_LAYOUT, sim::kernels::EmbeddingGrad, float, double, ::phi::dtype::float16,
                          ::phi::dtype::bfloat16) {}
PD_REGISTER_PLUGIN_KERNEL(fill, sim, ALL_LAYOUT, sim::kernels::Fill, XPULAB_ALL_TYPES) {}
