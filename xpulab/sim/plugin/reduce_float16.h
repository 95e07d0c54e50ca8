// Conversions of float16 and bfloat16 from and to float, by their bits: not all supported compilers have the types.
#pragma once

#include <cstdint>
#include <cstring>

namespace sim::reduce {

inline float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of_float16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;  // exact: ten bits
  return float_of_bits(sign | bits_of_float(subnormal));
}

inline uint16_t float16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the last bit that a subnormal half has at the last bit of the float's fraction,
    // so that the addition itself rounds, to nearest even.
    const float shifted = float_of_bits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of_float(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

inline float float_of_bfloat16(uint16_t bfloat16) { return float_of_bits(static_cast<uint32_t>(bfloat16) << 16); }

inline uint16_t bfloat16_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // stays a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace sim::reduce
