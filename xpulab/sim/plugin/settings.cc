// See settings.h.
#include "settings.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include "error.h"
#include "limits.h"

namespace sim {
namespace {

constexpr uint64_t kMostTimeoutSeconds = 24 * 60 * 60;

uint64_t from_environment(const char* name, uint64_t default_value, uint64_t least, uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return default_value;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != 0 || value < least || value > most) {
    throw Error(std::string(name) + "=" + text + ": must be a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most),
                C_ERROR);
  }
  return value;
}

}  // namespace

const Settings& settings() {
  static const Settings read{
      static_cast<int>(from_environment("XPULAB_SIM_CARDS", 1, 1, kMostCards)),
      from_environment("XPULAB_SIM_MEMORY", kMemoryBytes, kLeastMemoryBytes, kMostMemoryBytes),
      std::chrono::seconds(from_environment("XPULAB_SIM_TIMEOUT", kTimeoutSeconds, 1, kMostTimeoutSeconds)),
  };
  return read;
}

}  // namespace sim
