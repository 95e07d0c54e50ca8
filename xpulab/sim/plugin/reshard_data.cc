// See reshard_data.h.
#include "reshard_data.h"

#include <cstring>
#include <string>
#include <utility>

#include "paddle/phi/backends/device_manager.h"
#include "paddle/phi/core/distributed/auto_parallel/reshard/reshard_utils.h"
#include "paddle/phi/core/distributed/store/store_utils.h"
#include "paddle/phi/core/distributed/xccl_comm_context.h"

#include "error.h"
#include "kernels.h"

namespace sim::reshard {
namespace {

using phi::DenseTensor;
using phi::DeviceManager;
using phi::ReduceType;

using kernels::Block;
using kernels::block_of;

const char* const kDevice = "sim";

size_t bytes_of(const DenseTensor& tensor) { return tensor.numel() * phi::SizeOf(tensor.dtype()); }

char* data_of(const DenseTensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.data())); }

// A card has no average: the sum is divided afterwards.
phi::ccl::CCLReduceOp op_of(ReduceType type) {
  switch (type) {
    case ReduceType::kRedSum:
    case ReduceType::kRedAvg: return phi::ccl::CCLReduceOp::SUM;
    case ReduceType::kRedMax:
    case ReduceType::kRedAny: return phi::ccl::CCLReduceOp::MAX;
    case ReduceType::kRedMin:
    case ReduceType::kRedAll: return phi::ccl::CCLReduceOp::MIN;
    case ReduceType::kRedProd: return phi::ccl::CCLReduceOp::PRODUCT;
  }
  throw Error("reshard: unknown way to combine summands: " + std::to_string(static_cast<int>(type)), C_ERROR);
}

// Piece number `each` of a tensor whose first dimension counts pieces.
Block piece_of(const DenseTensor& tensor, int64_t each) {
  Block block = block_of(tensor);
  block.data += each * static_cast<int64_t>(bytes_of(tensor)) / block.dims[0];
  block.dims.erase(block.dims.begin());
  return block;
}

phi::ccl::CCLComm communicator_of(const phi::CustomContext& context, const std::vector<int64_t>& ranks) {
  auto* found = phi::distributed::CreateOrGetCommContext(context, ranks);
  const auto* communicator = dynamic_cast<phi::distributed::XCCLCommContext*>(found);
  if (communicator == nullptr) throw Error("reshard: Paddle has no communicator of cards for these ranks", C_ERROR);
  return communicator->GetXcclComm();
}

template <typename T>
void divide_all(void* data, int64_t count, int64_t by) {
  for (T* each = static_cast<T*>(data); count > 0; --count, ++each) {
    *each = static_cast<T>(static_cast<double>(*each) / static_cast<double>(by));
  }
}

}  // namespace

std::vector<int64_t> local_dims(const phi::distributed::ProcessMesh& mesh, std::vector<int64_t> dims,
                                const std::vector<std::vector<int64_t>>& cut) {
  const std::vector<int64_t> place = phi::distributed::GetCurRankCoordInMesh(mesh);
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    for (const int64_t axis : cut[dim]) dims[dim] = size_of_part(dims[dim], mesh.dim_size(axis), place[axis]);
  }
  return dims;
}

DenseTensor sent_to_other_ranks(const phi::CustomContext& context, const DenseTensor& value,
                                const phi::distributed::ProcessMesh& from, const phi::distributed::ProcessMesh& to,
                                const std::vector<int64_t>& dims, const std::vector<std::vector<int64_t>>& cut) {
  const int64_t rank = phi::distributed::GetCurGlobalRank();
  DenseTensor received;
  for (size_t each = 0; each < from.process_ids().size(); ++each) {
    const int64_t sender = from.process_ids()[each], receiver = to.process_ids()[each];
    if (rank == sender && rank == receiver) received = value;
    if (sender == receiver || (rank != sender && rank != receiver)) continue;
    const auto communicator = communicator_of(context, {sender, receiver});
    if (rank == sender) {
      DeviceManager::CCLSend(kDevice, data_of(value), bytes_of(value), phi::DataType::UINT8, 1, communicator, context.stream());
    } else {
      received.Resize(common::make_ddim(local_dims(to, dims, cut)));
      context.Alloc(&received, value.dtype());
      DeviceManager::CCLRecv(kDevice, data_of(received), bytes_of(received), phi::DataType::UINT8, 0, communicator,
                             context.stream());
    }
  }
  return received;
}

// Ranks of the job that differ only in their place along the axis; position: this rank's among them.
struct Held::Along {
  int64_t ranks, position;
  phi::ccl::CCLComm communicator;
};

Held::Held(const phi::CustomContext& context, const phi::distributed::ProcessMesh& mesh, std::vector<int64_t> dims,
           std::vector<std::vector<int64_t>> cut, DenseTensor value)
    : context_(context), mesh_(mesh), dims_(std::move(dims)), cut_(std::move(cut)), value_(std::move(value)) {}

void Held::apply(const Step& step) {
  switch (step.move) {
    case Move::kReduce: return reduce(step);
    case Move::kReduceToPart: return reduce_to_part(step);
    case Move::kGather: return gather(step);
    case Move::kExchange: return exchange(step);
    case Move::kCut: return cut(step);
    case Move::kToSummands: return to_summands(step);
  }
}

Held::Along Held::along(int64_t axis) const {
  const std::vector<int64_t> place = phi::distributed::GetCurRankCoordInMesh(mesh_);
  int64_t stride = 1, first = 0;
  for (int64_t each = mesh_.ndim() - 1, inner = 1; each >= 0; inner *= mesh_.dim_size(each), --each) {
    if (each == axis) {
      stride = inner;
    } else {
      first += place[each] * inner;
    }
  }
  std::vector<int64_t> ranks;
  for (int64_t each = 0; each < mesh_.dim_size(axis); ++each) ranks.push_back(mesh_.process_ids()[first + each * stride]);
  return {mesh_.dim_size(axis), place[axis], communicator_of(context_, ranks)};
}

int64_t Held::size(int64_t dim) const { return local_dims(mesh_, dims_, cut_)[dim]; }

DenseTensor Held::allocate(const std::vector<int64_t>& dims) const {
  DenseTensor made;
  made.Resize(common::make_ddim(dims));
  context_.Alloc(&made, value_.dtype());
  return made;
}

std::vector<int64_t> Held::dims_with(int64_t dim, int64_t size) const {
  std::vector<int64_t> dims = common::vectorize<int64_t>(value_.dims());
  dims[dim] = size;
  return dims;
}

void Held::copy_part(const Block& from, int64_t start, int64_t count, int64_t dim, const Block& to, int64_t to_start) const {
  kernels::copy_part(context_, phi::SizeOf(value_.dtype()), from, start, count, dim, to, to_start);
}

void Held::reduce(const Step& step) {
  const Along axis = along(step.axis);
  DenseTensor sum = allocate(common::vectorize<int64_t>(value_.dims()));
  if (sum.numel() > 0) {
    DeviceManager::CCLAllReduce(kDevice, data_of(value_), data_of(sum), sum.numel(), sum.dtype(), op_of(step.op),
                                axis.communicator, context_.stream());
  }
  value_ = sum;
  if (step.op == ReduceType::kRedAvg) divide(axis.ranks);
}

void Held::reduce_to_part(const Step& step) {
  const Along axis = along(step.axis);
  const int64_t whole = size(step.dim), part = part_size(whole, axis.ranks);
  std::vector<int64_t> all_parts = dims_with(step.dim, part);
  all_parts.insert(all_parts.begin(), axis.ranks);
  DenseTensor parts = allocate(all_parts), sum = allocate(dims_with(step.dim, part));
  const size_t bytes = bytes_of(parts);
  char* to = data_of(parts);
  if (part * axis.ranks != whole && bytes > 0) {  // what no rank uses must still be numbers
    kernels::launch(context_, "fill", to, bytes, bytes, [=] { std::memset(to, 0, bytes); });
  }
  for (int64_t each = 0; each < axis.ranks; ++each) {
    copy_part(block_of(value_), each * part, size_of_part(whole, axis.ranks, each), step.dim, piece_of(parts, each), 0);
  }
  if (sum.numel() > 0) {
    DeviceManager::CCLReduceScatter(kDevice, to, data_of(sum), sum.numel(), sum.dtype(), op_of(step.op), axis.communicator,
                                    context_.stream());
  }
  cut_[step.dim].push_back(step.axis);
  value_ = sum;
  const int64_t mine = size(step.dim);
  if (mine != part) {
    value_ = allocate(dims_with(step.dim, mine));
    copy_part(block_of(sum), 0, mine, step.dim, block_of(value_), 0);
  }
  if (step.op == ReduceType::kRedAvg) divide(axis.ranks);
}

void Held::gather(const Step& step) {
  const Along axis = along(step.axis);
  cut_[step.dim].pop_back();
  const int64_t whole = size(step.dim), part = part_size(whole, axis.ranks);
  DenseTensor mine = value_;
  if (value_.dims()[step.dim] != part) {  // all ranks send equally much
    mine = allocate(dims_with(step.dim, part));
    copy_part(block_of(value_), 0, value_.dims()[step.dim], step.dim, block_of(mine), 0);
  }
  std::vector<int64_t> all_parts = dims_with(step.dim, part);
  all_parts.insert(all_parts.begin(), axis.ranks);
  DenseTensor parts = allocate(all_parts), out = allocate(dims_with(step.dim, whole));
  if (mine.numel() > 0) {
    DeviceManager::CCLAllGather(kDevice, data_of(mine), data_of(parts), bytes_of(mine), phi::DataType::UINT8, axis.communicator,
                                context_.stream());
  }
  for (int64_t each = 0; each < axis.ranks; ++each) {
    copy_part(piece_of(parts, each), 0, size_of_part(whole, axis.ranks, each), step.dim, block_of(out), each * part);
  }
  value_ = out;
}

void Held::exchange(const Step& step) {
  const Along axis = along(step.axis);
  cut_[step.from].pop_back();
  const int64_t gathered = size(step.from), divided = size(step.dim);
  cut_[step.dim].push_back(step.axis);
  const int64_t mine = size(step.dim);
  std::vector<DenseTensor> sent, received;
  std::vector<const void*> send;
  std::vector<void*> receive;
  std::vector<size_t> send_bytes, receive_bytes;
  for (int64_t each = 0; each < axis.ranks; ++each) {
    const int64_t count = size_of_part(divided, axis.ranks, each);
    sent.push_back(allocate(dims_with(step.dim, count)));
    copy_part(block_of(value_), each * part_size(divided, axis.ranks), count, step.dim, block_of(sent.back()), 0);
    std::vector<int64_t> dims = dims_with(step.dim, mine);
    dims[step.from] = size_of_part(gathered, axis.ranks, each);
    received.push_back(allocate(dims));
    send.push_back(sent.back().data());
    receive.push_back(received.back().data());
    send_bytes.push_back(bytes_of(sent.back()));
    receive_bytes.push_back(bytes_of(received.back()));
  }
  const std::vector<phi::DataType> types(axis.ranks, phi::DataType::UINT8);
  DeviceManager::CCLAllToAll(kDevice, send.data(), send_bytes.data(), types.data(), receive.data(), receive_bytes.data(),
                             types.data(), axis.position, axis.ranks, axis.communicator, context_.stream());
  std::vector<int64_t> dims = dims_with(step.dim, mine);
  dims[step.from] = gathered;
  value_ = allocate(dims);
  const int64_t part = part_size(gathered, axis.ranks);
  for (int64_t each = 0; each < axis.ranks; ++each) {
    copy_part(block_of(received[each]), 0, received[each].dims()[step.from], step.from, block_of(value_), each * part);
  }
}

void Held::cut(const Step& step) {
  const int64_t whole = size(step.dim), parts = mesh_.dim_size(step.axis);
  const int64_t position = phi::distributed::GetCurRankCoordInMesh(mesh_)[step.axis];
  cut_[step.dim].push_back(step.axis);
  DenseTensor part = allocate(dims_with(step.dim, size(step.dim)));
  copy_part(block_of(value_), position * part_size(whole, parts), part.dims()[step.dim], step.dim, block_of(part), 0);
  value_ = part;
}

void Held::to_summands(const Step& step) {
  if (step.op == ReduceType::kRedProd) throw Error("reshard: the whole is not made to factors of a product", C_ERROR);
  if (step.op != ReduceType::kRedSum) return;  // the whole, on every rank, combines to itself
  if (phi::distributed::GetCurRankCoordInMesh(mesh_)[step.axis] == 0) return;
  DenseTensor zeros = allocate(common::vectorize<int64_t>(value_.dims()));
  const size_t bytes = bytes_of(zeros);
  char* to = data_of(zeros);
  if (bytes > 0) kernels::launch(context_, "fill", to, bytes, bytes, [=] { std::memset(to, 0, bytes); });
  value_ = zeros;
}

void Held::divide(int64_t by) {
  const int64_t count = value_.numel();
  char* data = data_of(value_);
  const phi::DataType type = value_.dtype();
  const size_t bytes = bytes_of(value_);
  if (bytes == 0) return;
  kernels::launch(context_, "fill", data, bytes, bytes, [=] {
    switch (type) {
      case phi::DataType::FLOAT32: return divide_all<float>(data, count, by);
      case phi::DataType::FLOAT64: return divide_all<double>(data, count, by);
      case phi::DataType::FLOAT16: return divide_all<phi::dtype::float16>(data, count, by);
      case phi::DataType::BFLOAT16: return divide_all<phi::dtype::bfloat16>(data, count, by);
      default: throw Error("reshard: an average of numbers that are not floating-point", C_ERROR);
    }
  });
}

}  // namespace sim::reshard
