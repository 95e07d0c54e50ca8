// Processes of this machine: whether one is still running.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace sim::shm {

// A process, told apart from a later one with the same id by the time when it was started (clock ticks since boot).
struct Process {
  pid_t id = 0;
  uint64_t started = 0;

  static Process self();
  // 'R', 'S', 'D', 'T' ... as in /proc/<id>/stat while this very process runs; '\0' once it has ended (a zombie has).
  char state() const;
  bool alive() const { return state() != '\0'; }
};

// What identifies this boot and the namespace of process ids, since an id means nothing beyond them.
std::string boot_id();
uint64_t process_namespace();

}  // namespace sim::shm
