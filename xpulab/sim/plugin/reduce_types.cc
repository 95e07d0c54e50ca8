// See reduce_types.h.
#include "reduce_types.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "reduce_float16.h"

namespace sim::reduce {
namespace {

constexpr size_t kBlock = 512;  // elements that are accumulated at a time: 8 KB of the widest type

// ---- stored types and the types in which they are accumulated --------------------------------------------------

template <class T>
struct Plain {  // float and double
  using Stored = T;
  using Sum = T;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return value; }
};

template <class T>
struct Integer {  // 64 bits hold every product and sum modulo the width of T, and the sum of an average
  using Stored = T;
  using Sum = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return static_cast<Stored>(value); }
};

struct Boolean {
  using Stored = uint8_t;
  using Sum = uint8_t;
  static Sum load(Stored value) { return value != 0; }
  static Stored store(Sum value) { return value; }
};

struct Float16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored value) { return float_of_float16(value); }
  static Stored store(Sum value) { return float16_of_float(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored value) { return float_of_bfloat16(value); }
  static Stored store(Sum value) { return bfloat16_of_float(value); }
};

template <class T>
struct Pair {
  T real, imaginary;
};

template <class T>
struct Complex {
  using Stored = Pair<T>;
  using Sum = Pair<T>;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return value; }
};

// ---- the operations ---------------------------------------------------------------------------------------------

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // signed overflow would be undefined
  } else {
    return a + b;
  }
}

template <class T>
Pair<T> add(Pair<T> a, Pair<T> b) {
  return {a.real + b.real, a.imaginary + b.imaginary};
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class T>
Pair<T> multiply(Pair<T> a, Pair<T> b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

template <class T>
T divide(T sum, size_t number) {
  return sum / static_cast<T>(number);
}

template <class T>
Pair<T> divide(Pair<T> sum, size_t number) {
  return {sum.real / static_cast<T>(number), sum.imaginary / static_cast<T>(number)};
}

template <class T>
T larger(T a, T b) {
  return (b > a || b != b) ? b : a;
}

template <class T>
T smaller(T a, T b) {
  return (b < a || b != b) ? b : a;
}

template <class Element, class Merge, class Finish>
void accumulate(const void* const* sources, size_t number, void* out, size_t count, Merge merge, Finish finish) {
  using Stored = typename Element::Stored;
  using Sum = typename Element::Sum;
  Sum sums[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t length = std::min(kBlock, count - start);
    const Stored* first = static_cast<const Stored*>(sources[0]) + start;
    for (size_t i = 0; i < length; ++i) sums[i] = Element::load(first[i]);
    for (size_t source = 1; source < number; ++source) {
      const Stored* values = static_cast<const Stored*>(sources[source]) + start;
      for (size_t i = 0; i < length; ++i) sums[i] = merge(sums[i], Element::load(values[i]));
    }
    Stored* results = static_cast<Stored*>(out) + start;
    for (size_t i = 0; i < length; ++i) results[i] = Element::store(finish(sums[i]));
  }
}

template <class Element, bool kOrdered>
void combine_as(Op op, const void* const* sources, size_t number, void* out, size_t count) {
  using Sum = typename Element::Sum;
  const auto unchanged = [](Sum sum) { return sum; };
  const auto mean = [number](Sum sum) { return divide(sum, number); };
  const auto plus = [](Sum a, Sum b) { return add(a, b); };
  const auto times = [](Sum a, Sum b) { return multiply(a, b); };
  if (op == Op::kSum) return accumulate<Element>(sources, number, out, count, plus, unchanged);
  if (op == Op::kAvg) return accumulate<Element>(sources, number, out, count, plus, mean);
  if (op == Op::kProduct) return accumulate<Element>(sources, number, out, count, times, unchanged);
  if constexpr (kOrdered) {
    const auto maximum = [](Sum a, Sum b) { return larger(a, b); };
    const auto minimum = [](Sum a, Sum b) { return smaller(a, b); };
    if (op == Op::kMax) return accumulate<Element>(sources, number, out, count, maximum, unchanged);
    if (op == Op::kMin) return accumulate<Element>(sources, number, out, count, minimum, unchanged);
  }
}

void combine_booleans(Op op, const void* const* sources, size_t number, void* out, size_t count) {
  const auto unchanged = [](uint8_t value) { return value; };
  const auto any = [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a | b); };
  const auto all = [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a & b); };
  if (op == Op::kSum || op == Op::kMax) return accumulate<Boolean>(sources, number, out, count, any, unchanged);
  accumulate<Boolean>(sources, number, out, count, all, unchanged);
}

bool is_complex(Type type) { return type == Type::kComplex64 || type == Type::kComplex128; }

}  // namespace

const char* name_of(Type type) {
  static const char* const kNames[] = {"BOOL",  "UINT8",   "UINT16",  "UINT32",  "UINT64",   "INT8",      "INT16",     "INT32",
                                       "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16", "COMPLEX64", "COMPLEX128"};
  const auto number = static_cast<uint32_t>(type);
  return number >= 1 && number <= 15 ? kNames[number - 1] : "unknown type";
}

const char* name_of(Op op) {
  static const char* const kNames[] = {"SUM", "AVG", "MAX", "MIN", "PRODUCT"};
  const auto number = static_cast<uint32_t>(op);
  return number <= 4 ? kNames[number] : "unknown operation";
}

size_t size_of(Type type) {
  static const size_t kSizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16};
  const auto number = static_cast<uint32_t>(type);
  if (number < 1 || number > 15) throw InvalidReduction("there is no element type with the number " + std::to_string(number));
  return kSizes[number - 1];
}

void require(Type type, Op op) {
  size_of(type);
  if (static_cast<uint32_t>(op) > 4) {
    throw InvalidReduction("there is no reduction with the number " + std::to_string(static_cast<uint32_t>(op)));
  }
  if (is_complex(type) && (op == Op::kMax || op == Op::kMin)) {
    throw InvalidReduction(std::string(name_of(op)) + " of " + name_of(type) + ": complex numbers have no order");
  }
  if (type == Type::kBool && op == Op::kAvg) {
    throw InvalidReduction("AVG of BOOL is not defined; cast to a number, or use MIN (all) or MAX (any)");
  }
}

void combine(Type type, Op op, const void* const* sources, size_t number, void* out, size_t count) {
  require(type, op);
  switch (type) {
    case Type::kBool: return combine_booleans(op, sources, number, out, count);
    case Type::kUInt8: return combine_as<Integer<uint8_t>, true>(op, sources, number, out, count);
    case Type::kUInt16: return combine_as<Integer<uint16_t>, true>(op, sources, number, out, count);
    case Type::kUInt32: return combine_as<Integer<uint32_t>, true>(op, sources, number, out, count);
    case Type::kUInt64: return combine_as<Integer<uint64_t>, true>(op, sources, number, out, count);
    case Type::kInt8: return combine_as<Integer<int8_t>, true>(op, sources, number, out, count);
    case Type::kInt16: return combine_as<Integer<int16_t>, true>(op, sources, number, out, count);
    case Type::kInt32: return combine_as<Integer<int32_t>, true>(op, sources, number, out, count);
    case Type::kInt64: return combine_as<Integer<int64_t>, true>(op, sources, number, out, count);
    case Type::kFloat16: return combine_as<Float16, true>(op, sources, number, out, count);
    case Type::kFloat32: return combine_as<Plain<float>, true>(op, sources, number, out, count);
    case Type::kFloat64: return combine_as<Plain<double>, true>(op, sources, number, out, count);
    case Type::kBFloat16: return combine_as<BFloat16, true>(op, sources, number, out, count);
    case Type::kComplex64: return combine_as<Complex<float>, false>(op, sources, number, out, count);
    case Type::kComplex128: return combine_as<Complex<double>, false>(op, sources, number, out, count);
  }
}

}  // namespace sim::reduce
