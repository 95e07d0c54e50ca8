// See half.h: the conversions, and the kernels that Paddle gets.
#include "paddle/phi/config.h"
// The wheel's config.h defines it, but the wheel does not contain the headers of oneDNN.
#undef PADDLE_WITH_DNNL

#include "half.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "paddle/phi/core/kernel_factory.h"

#include "reduce_float16.h"

namespace sim::half {
namespace {

struct Note {
  std::string text;
  const Single* single;  // nullptr when the kernel was not added
};

std::vector<Note>& notes() {
  static auto& all = *new std::vector<Note>;
  return all;
}

const char* name_of(DataType type) {
  return type == DataType::BFLOAT16 ? "bfloat16" : type == DataType::FLOAT16 ? "float16" : "float32";
}

void to_single(const phi::DenseTensor& from, float* to) {
  const auto* bits = static_cast<const uint16_t*>(from.data());
  const int64_t count = from.numel();
  if (from.dtype() == DataType::BFLOAT16) {
    for (int64_t each = 0; each < count; ++each) to[each] = reduce::float_of_bfloat16(bits[each]);
  } else {
    for (int64_t each = 0; each < count; ++each) to[each] = reduce::float_of_float16(bits[each]);
  }
}

void to_half(const float* from, int64_t count, DataType half, uint16_t* to) {
  if (half == DataType::BFLOAT16) {
    for (int64_t each = 0; each < count; ++each) to[each] = reduce::bfloat16_of_float(from[each]);
  } else {
    for (int64_t each = 0; each < count; ++each) to[each] = reduce::float16_of_float(from[each]);
  }
}

phi::DenseTensorMeta contiguous_single(const phi::DenseTensor& tensor) {
  phi::DenseTensorMeta meta(DataType::FLOAT32, tensor.dims(), tensor.layout());
  meta.strides = meta.calc_strides(meta.dims);
  return meta;
}

// Whether both have the same kinds of inputs, attributes and outputs: only then may one be called as the other.
bool is_alike(const phi::KernelArgsDef& one, const phi::KernelArgsDef& other) {
  const auto alike = [](const auto& these, const auto& those) {
    if (these.size() != those.size()) return false;
    for (size_t each = 0; each < these.size(); ++each) {
      if (these[each].type_index != those[each].type_index) return false;
    }
    return true;
  };
  return alike(one.input_defs(), other.input_defs()) && alike(one.attribute_defs(), other.attribute_defs()) &&
         alike(one.output_defs(), other.output_defs());
}

// Paddle's float32 kernel of this name, when its arguments are those that `parse` finds; else `why` says why there is none.
const phi::Kernel* single_kernel(const char* name, phi::KernelArgsParseFn parse, std::string* why) {
  auto& all = phi::KernelFactory::Instance().kernels();
  const phi::KernelKey key(phi::Backend::CPU, phi::DataLayout::ALL_LAYOUT, DataType::FLOAT32);
  const auto of_name = all.find(name);
  if (of_name == all.end() || of_name->second.count(key) == 0) {
    *why = "the CPU has no float32 kernel of this name";
    return nullptr;
  }
  const phi::Kernel& kernel = of_name->second.find(key)->second;
  phi::KernelArgsDef arguments;
  parse(key, &arguments);
  const bool fits = kernel.GetVariadicKernelFn<void*>() != nullptr && is_alike(arguments, kernel.args_def());
  if (!fits) *why = "the float32 kernel has other arguments";
  return fits ? &kernel : nullptr;
}

// "" when the kernel was added; else why it was not.
std::string why_not_added(const Kernel& wanted) {
  std::string why;
  const phi::Kernel* found = single_kernel(wanted.name, wanted.parse, &why);
  if (found == nullptr) return why;
  if (wanted.single->function != nullptr) return "its signature is listed twice in a file";
  const phi::Kernel of_paddle = *found;
  wanted.single->function = of_paddle.GetVariadicKernelFn<void*>();
  phi::Kernel kernel(wanted.compute, wanted.function);
  // Where Paddle's kernel says so, inputs stay where they are and outputs have a type of their own.
  *kernel.mutable_args_def() = of_paddle.args_def();
  for (auto& input : kernel.mutable_args_def()->input_defs()) {
    if (input.dtype == DataType::FLOAT32) input.SetDataType(wanted.half);
  }
  for (auto& output : kernel.mutable_args_def()->output_defs()) {
    if (output.dtype == DataType::FLOAT32) output.SetDataType(wanted.half);
  }
  kernel.get_kerneltype_forvar_fn_ = of_paddle.get_kerneltype_forvar_fn_;
  const phi::KernelKey key(phi::Backend::CPU, phi::DataLayout::ALL_LAYOUT, wanted.half);
  phi::KernelFactory::Instance().kernels()[wanted.name][key] = kernel;
  return "";
}

}  // namespace

bool is_wanted() {
  static const char* const value = std::getenv("XPULAB_SIM_HALF");
  static const bool wanted = value != nullptr && std::strcmp(value, "1") == 0;
  return wanted;
}

phi::DenseTensor* Arguments::converted(const phi::DenseTensor& input) {
  phi::DenseTensor& single = tensors_.emplace_back();
  const phi::DenseTensorMeta meta = contiguous_single(input);
  single.set_meta(meta);
  // Of an input of which a kernel needs the shape only, Paddle has freed the memory. Kernels ask for memory all the same, also
  // of tensors without elements.
  const bool has_values = input.numel() > 0 && input.Holder() != nullptr && input.Holder()->size() > 0;
  void* to = context_.Alloc(&single, DataType::FLOAT32, 0, /*pinned=*/false, /*fake_alloc=*/!has_values);
  if (has_values) to_single(input, static_cast<float*>(to));
  return &single;
}

In Arguments::pass(In input) {
  phi::DenseTensor* single = input.dtype() == half_ ? converted(input) : nullptr;
  inputs_.push_back({&input, single});
  return single == nullptr ? input : *single;
}

Maybe Arguments::pass(Maybe input) {
  inputs_.push_back({input ? &input.get() : nullptr, nullptr});
  if (!input || input->dtype() != half_) return input;
  return optionals_.emplace_back(*converted(input.get()));
}

Ins Arguments::pass(Ins inputs) {
  inputs_.push_back({nullptr, nullptr});
  auto& list = lists_.emplace_back();
  for (const phi::DenseTensor* each : inputs) {
    list.push_back(each != nullptr && each->dtype() == half_ ? converted(*each) : each);
  }
  return list;
}

MaybeIns Arguments::pass(MaybeIns inputs) {
  if (!inputs) {
    inputs_.push_back({nullptr, nullptr});
    return inputs;
  }
  return optional_lists_.emplace_back(pass(inputs.get()));
}

Out Arguments::pass(Out output) {
  if (output == nullptr || output->dtype() != half_) {
    outputs_.push_back({output, output, output == nullptr ? DataType::FLOAT32 : output->dtype()});
    return output;
  }
  phi::DenseTensor& single = tensors_.emplace_back();
  const phi::DenseTensorMeta meta = contiguous_single(*output);
  single.set_meta(meta);
  outputs_.push_back({output, &single, half_});
  return &single;
}

Outs Arguments::pass(const Outs& outputs) {
  Outs list;
  for (phi::DenseTensor* each : outputs) list.push_back(pass(each));
  return list;
}

void Arguments::use(const Master& master) {
  if (master.input < 0) return;
  auto& [weight, single] = inputs_.front();
  if (single == nullptr || outputs_.front().given == outputs_.front().single) return;  // the weight is no half type
  if (inputs_[master.input].given != nullptr) {
    *single = *inputs_[master.input].given;
    master_ = outputs_[master.output].given;
  }
  *outputs_.front().single = *single;  // in place: some kernels ask for it
}

void Arguments::round() {
  if (master_ != nullptr) *master_ = *outputs_.front().single;
  for (const auto& [given, single, type] : outputs_) {
    if (type == DataType::FLOAT32 || (single->numel() > 0 && !single->has_allocation())) continue;
    if (single->dtype() != DataType::FLOAT32) {
      if (single != given) *given = *single;  // what Paddle expects in the type of an input, of any() and all() for one
      continue;
    }
    // A kernel may also give its own type to what Paddle expects in another one: of put_along_axis Paddle takes the gradient of
    // the values for one of the indices.
    const phi::DenseTensor written = *single;
    given->Resize(written.dims());
    auto* to = static_cast<uint16_t*>(context_.Alloc(given, half_));
    if (written.numel() > 0) to_half(static_cast<const float*>(written.data()), written.numel(), half_, to);
  }
}

void add(const Kernel& kernel) {
  const std::string why = why_not_added(kernel);
  const std::string outcome = why.empty() ? "added" : "skipped: " + why;
  notes().push_back(
      {std::string(kernel.name) + " " + name_of(kernel.half) + " " + outcome, why.empty() ? kernel.single : nullptr});
}

std::string why_not_of_one_tensor(const char* name) {
  std::string why;
  single_kernel(name, phi::KernelArgsParseFunctor<void (*)(const phi::CPUContext&, In, Out)>::Parse, &why);
  return why;
}

std::string report() {
  std::string text;
  for (const Note& note : notes()) {
    text += note.text + (note.single == nullptr ? "" : " " + std::to_string(note.single->calls)) + "\n";
  }
  return text;
}

}  // namespace sim::half
