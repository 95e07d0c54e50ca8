// Kernels for float16 and bfloat16 out of Paddle's float32 kernels for the CPU. Include it after paddle/phi/config.h.
//
// The CPU has few kernels for these types. A kernel of this file converts its inputs to float32, calls Paddle's float32
// kernel, and rounds the results to the nearest number of the type, to even where two are as near. Sums are float32 sums
// in the order of the CPU. That is what mixed precision does; it is not the arithmetic of any card.
//
// The kernels belong to the CPU, whose kernels Paddle takes for each operator that a simulated card has none for. Copies,
// counts of memory and faults stay those of any other operator. A process without the plug-in keeps the CPU as it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/common/int_array.h"
#include "paddle/phi/common/scalar.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_registry.h"
#include "paddle/phi/core/kernel_utils.h"

#include "half_lists.h"

namespace sim::half {

// The kinds of arguments of Paddle's kernels. Signatures are in Paddle's order: inputs, attributes, outputs.
using In = const phi::DenseTensor&;
using Maybe = const paddle::optional<phi::DenseTensor>&;
using Ins = const std::vector<const phi::DenseTensor*>&;
using MaybeIns = const paddle::optional<std::vector<const phi::DenseTensor*>>&;
using Out = phi::DenseTensor*;
using Outs = std::vector<phi::DenseTensor*>;
using Number = const phi::Scalar&;
using Numbers = const std::vector<phi::Scalar>&;
using Integers = const phi::IntArray&;
using Ints = const std::vector<int>&;
using Longs = const std::vector<int64_t>&;
using Text = const std::string&;
using phi::DataType;

// For optimizers: the numbers of the arguments with the float32 copy of the weights, among inputs and among outputs. The
// weight is the first input and the first output. Paddle's kernels for the CPU ignore the copy.
struct Master {
  int input = -1, output = -1;
};

// The arguments of one call, for the float32 kernel: tensors of the half type are replaced by float32 tensors.
class Arguments {
 public:
  Arguments(const phi::CPUContext& context, DataType half) : context_(context), half_(half) {}

  In pass(In input);
  Maybe pass(Maybe input);
  Ins pass(Ins inputs);
  MaybeIns pass(MaybeIns inputs);
  Out pass(Out output);
  Outs pass(const Outs& outputs);
  DataType pass(DataType type) const { return type == half_ ? DataType::FLOAT32 : type; }

  template <typename Attribute>
  const Attribute& pass(const Attribute& attribute) const {
    return attribute;
  }

  // Lets the kernel update the float32 copy of the weights, where the caller gave one. Call it before the kernel.
  void use(const Master& master);

  // Rounds what the kernel has written. Call it after the kernel.
  void round();

 private:
  struct Input {
    const phi::DenseTensor* given;
    phi::DenseTensor* single;
  };
  struct Output {
    phi::DenseTensor *given, *single;  // what the caller gave, and what the kernel writes
    DataType type;                     // that Paddle expects
  };

  phi::DenseTensor* converted(const phi::DenseTensor& input);

  const phi::CPUContext& context_;
  const DataType half_;
  std::deque<phi::DenseTensor> tensors_;
  std::deque<paddle::optional<phi::DenseTensor>> optionals_;
  std::deque<std::vector<const phi::DenseTensor*>> lists_;
  std::deque<paddle::optional<std::vector<const phi::DenseTensor*>>> optional_lists_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  phi::DenseTensor* master_ = nullptr;
};

// Paddle's float32 kernel behind a kernel of a half type, and how often it was called.
struct Single {
  void* function = nullptr;
  std::atomic<int64_t> calls = 0;
};

// What is known of a kernel before it is added.
struct Kernel {
  const char* name;
  DataType half;
  phi::KernelFn compute;
  void* function;
  Single* single;
  phi::KernelArgsParseFn parse;
};

// Adds it, if the types of all arguments are those of Paddle's float32 kernel; else notes why not. It replaces the kernel that
// Paddle may have for the type: some of these add up in the half type, or ignore the float32 copy of the weights.
void add(const Kernel& kernel);

namespace {  // one set of functions for each source file: slots are numbered in a file

template <typename... A>
using Function = void(const phi::CPUContext&, A...);

template <typename... A>
void call(Single& single, const phi::CPUContext& context, DataType half, const Master& master, A... arguments) {
  Arguments converted(context, half);
  std::tuple<A...> passed{converted.pass(arguments)...};
  converted.use(master);
  ++single.calls;
  std::apply([&](A... each) { reinterpret_cast<Function<A...>*>(single.function)(context, each...); }, passed);
  converted.round();
}

// Paddle's way to call a kernel out of a program, once for a signature: `chosen` is the kernel that is meant.
template <typename... A>
struct InPrograms {
  static inline thread_local Function<A...>* chosen = nullptr;
  static void call(const phi::CPUContext& context, A... arguments) { chosen(context, std::forward<A>(arguments)...); }
};

// The functions of one kernel. master_input, master_output: as in Master.
template <DataType half, size_t slot, int master_input, int master_output, typename... A>
struct Slot {
  static inline Single single;

  static void function(const phi::CPUContext& context, A... arguments) {
    call<A...>(single, context, half, {master_input, master_output}, std::forward<A>(arguments)...);
  }

  static void compute(phi::KernelContext* context) {
    InPrograms<A...>::chosen = function;
    phi::KernelImpl<Function<A...>*, &InPrograms<A...>::call>::Compute(context);
  }
};

template <DataType half, int master_input, int master_output, typename... A, size_t... slot>
void add_slots(const char* const* names, std::index_sequence<slot...>) {
  (add({names[slot], half, Slot<half, slot, master_input, master_output, A...>::compute,
        reinterpret_cast<void*>(Slot<half, slot, master_input, master_output, A...>::function),
        &Slot<half, slot, master_input, master_output, A...>::single, phi::KernelArgsParseFunctor<Function<A...>*>::Parse}),
   ...);
}

// Adds kernels of one signature for both types. Call it once for a signature.
template <typename... A, size_t count>
void kernels(const char* const (&names)[count]) {
  add_slots<DataType::BFLOAT16, -1, -1, A...>(names, std::make_index_sequence<count>());
  add_slots<DataType::FLOAT16, -1, -1, A...>(names, std::make_index_sequence<count>());
}

// As kernels(), for those that update weights.
template <int master_input, int master_output, typename... A, size_t count>
void optimizers(const char* const (&names)[count]) {
  add_slots<DataType::BFLOAT16, master_input, master_output, A...>(names, std::make_index_sequence<count>());
  add_slots<DataType::FLOAT16, master_input, master_output, A...>(names, std::make_index_sequence<count>());
}

}  // namespace
}  // namespace sim::half
