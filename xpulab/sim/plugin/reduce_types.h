// The element types of collectives, and the reduction of the values of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace sim::reduce {

// Numbered as Paddle's C_DataType.
enum class Type : uint32_t {
  kBool = 1,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBFloat16,
  kComplex64,
  kComplex128,
};

// Numbered as Paddle's C_CCLReduceOp.
enum class Op : uint32_t { kSum = 0, kAvg, kMax, kMin, kProduct };

// An unknown type or operation, or an operation that is not defined for a type.
struct InvalidReduction : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

const char* name_of(Type type);  // "FLOAT32"; "unknown type" for another number
const char* name_of(Op op);      // "SUM"; "unknown operation" for another number

// Bytes of one element: 1 to 16, a power of two. Throws InvalidReduction for an unknown type.
size_t size_of(Type type);

// Throws InvalidReduction when op cannot be applied to type: MAX and MIN of complex numbers, AVG of booleans.
void require(Type type, Op op);

// out[i] = sources[0][i] op sources[1][i] op ... , always from the first source to the last, so that the result is
// the same in every bit on every rank.
//   float16 and bfloat16 are accumulated in float32 over all sources and rounded once, to nearest even;
//   SUM and PRODUCT of integers wrap around; AVG of integers is the 64-bit sum divided, towards zero;
//   booleans: SUM and MAX are "any", PRODUCT and MIN are "all"; MAX and MIN pass a NaN on.
// out may be one of the sources. Throws InvalidReduction as require() does.
void combine(Type type, Op op, const void* const* sources, size_t number, void* out, size_t count);

}  // namespace sim::reduce
