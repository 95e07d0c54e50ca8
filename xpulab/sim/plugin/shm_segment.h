// Named shared memory of one communicator.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shm_process.h"

namespace sim::shm {

// An error of a communicator. The text is complete: which call, which communicator, which rank, what to do.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The name of a segment identifies the process that created it, so that stale segments are found without opening them:
// xpulab-sim-<user>-<boot>-<process namespace>-<process>-<start time>-<serial>
struct Name {
  uid_t user = 0;
  std::string boot;        // the first 8 digits of the boot's id
  uint64_t processes = 0;  // the namespace of the process id
  Process creator;
  uint32_t serial = 0;

  static Name next();  // one that this process has not used yet
  // Throws Failure when the text is not such a name.
  static Name parse(const std::string& text);
  std::string text() const;
  std::string brief() const;  // "<process>-<serial>", for error messages
  bool creator_alive() const;
};

// The names of all segments of this user in /dev/shm.
std::vector<Name> names_present();

// A segment that is mapped into this process. The destructor unmaps it and keeps its name.
class Segment {
 public:
  // A new segment of so many zero bytes, all allocated: a full /dev/shm is an error here, not a SIGBUS later.
  static Segment create(const Name& name, size_t bytes);
  // An existing one, at its full size. Throws Failure when there is none.
  static Segment open(const Name& name, bool writable = true);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  ~Segment();

  // Makes the file larger, allocates all of its bytes and maps it again: addresses change.
  void grow(size_t bytes);
  // Maps the whole file after another process has made it larger.
  void map_all();

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Segment(int file, std::string path) : file_(file), path_(std::move(path)) {}
  void reserve(size_t bytes) const;
  void map(size_t bytes);

  int file_ = -1;
  std::string path_;
  bool writable_ = true;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Removes the name. The memory is freed when the last process has unmapped it. A missing name is not an error.
void unlink(const Name& name) noexcept;

}  // namespace sim::shm
