// See shm_process.h.
#include "shm_process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace sim::shm {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

struct Status {
  char state = '\0';
  uint64_t started = 0;
};

// Fields 3 and 22 of /proc/<id>/stat; field 2 is the command in brackets, which may contain blanks and brackets.
Status status_of(pid_t id) {
  const std::string line = first_line("/proc/" + std::to_string(id) + "/stat");
  const size_t bracket = line.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= line.size()) return {};
  Status status;
  status.state = line[bracket + 2];
  size_t at = bracket + 2;
  for (int field = 3; field < 22; ++field) {
    at = line.find(' ', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  status.started = std::strtoull(line.c_str() + at, nullptr, 10);
  return status;
}

}  // namespace

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id").substr(0, 8); }

uint64_t process_namespace() {
  struct stat about;
  return ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

Process Process::self() { return {::getpid(), status_of(::getpid()).started}; }

char Process::state() const {
  const Status now = status_of(id);
  const bool ended = now.state == '\0' || now.state == 'Z' || now.state == 'X' || now.started != started;
  return ended ? '\0' : now.state;
}

}  // namespace sim::shm
