// See error.h.
#include "error.h"

#include <cstdio>
#include <mutex>

namespace sim {
namespace {

// Never destroyed: threads of streams may outlive main().
std::mutex& reporting = *new std::mutex;
std::string& last = *new std::string;

}  // namespace

void report(const std::string& message) {
  std::lock_guard<std::mutex> lock(reporting);
  last = message;
  std::fprintf(stderr, "xpulab sim: %s\n", message.c_str());
  std::fflush(stderr);
}

std::string last_error() {
  std::lock_guard<std::mutex> lock(reporting);
  return last;
}

}  // namespace sim
