// Processes of this machine: whether one is still running.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace sim::shm {

// A process. Its start time (clock ticks since boot) distinguishes it from a later process with the same id.
struct Process {
  pid_t id = 0;
  uint64_t started = 0;

  static Process self();
  // 'R', 'S', 'D', 'T' ... as in /proc/<id>/stat while this process runs; '\0' when it has ended (a zombie has ended).
  char state() const;
  bool alive() const { return state() != '\0'; }
};

// This boot, and the namespace of process ids: a process id is only valid within both.
std::string boot_id();
uint64_t process_namespace();

}  // namespace sim::shm
