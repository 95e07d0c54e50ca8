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

// What went wrong in a communicator; the text is complete: which call, where, which rank, what to do.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The name of a segment says who made it, so that nothing has to be read to know whether it is still wanted:
// xpulab-sim-<user>-<boot>-<process namespace>-<process>-<start time>-<serial>
struct Name {
  uid_t user = 0;
  std::string boot;        // the first 8 digits of the boot's id
  uint64_t processes = 0;  // the namespace that the process id belongs to
  Process creator;
  uint32_t serial = 0;

  static Name next();  // one that this process has not used yet
  // Throws Failure when text is no such name.
  static Name parse(const std::string& text);
  std::string text() const;
  std::string brief() const;  // "<process>-<serial>": how messages call the communicator
  bool creator_alive() const;
};

// The names of all segments of this user that are in /dev/shm.
std::vector<Name> names_present();

// A segment mapped into this process. Not copied; unmapped at the end, which does not remove its name.
class Segment {
 public:
  // A new segment of so many bytes, all of them there (a full /dev/shm is an error here, not a SIGBUS later), zero.
  static Segment create(const Name& name, size_t bytes);
  // An existing one, at its full size. Throws Failure when there is none.
  static Segment open(const Name& name, bool writable = true);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  ~Segment();

  // Makes the file larger, all of the bytes there, and maps it again: addresses change.
  void grow(size_t bytes);
  // Maps what another process made larger.
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

// Removes the name; the memory stays with those who have mapped it, and goes with the last of them. A name that is
// gone already is no error.
void unlink(const Name& name) noexcept;

}  // namespace sim::shm
