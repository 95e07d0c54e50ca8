// See shm_segment.h.
#include "shm_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sim::shm {
namespace {

const char* const kFolder = "/dev/shm";
const char* const kPrefix = "xpulab-sim-";

std::string path_of(const Name& name) { return std::string(kFolder) + "/" + name.text(); }

[[noreturn]] void throw_failure(const std::string& path, const char* what, int error) {
  throw Failure(path + ": " + what + ": " + std::strerror(error));
}

}  // namespace

Name Name::next() {
  static std::atomic<uint32_t> serial{0};
  Name name;
  name.user = ::getuid();
  name.boot = boot_id();
  name.processes = process_namespace();
  name.creator = Process::self();
  name.serial = serial.fetch_add(1);
  return name;
}

Name Name::parse(const std::string& text) {
  Name name;
  unsigned user = 0;
  int process = 0;
  char boot[9] = "";
  int length = 0;
  const int fields = std::sscanf(text.c_str(), "xpulab-sim-%u-%8[0-9a-f]-%" SCNu64 "-%d-%" SCNu64 "-%u%n", &user, boot,
                                 &name.processes, &process, &name.creator.started, &name.serial, &length);
  if (fields != 6 || static_cast<size_t>(length) != text.size()) {
    throw Failure("'" + text +
                  "' is not the id of a simulated communicator; all ranks must use the id that one rank created, unchanged");
  }
  name.user = user;
  name.boot = boot;
  name.creator.id = process;
  return name;
}

std::string Name::text() const {
  return kPrefix + std::to_string(user) + "-" + boot + "-" + std::to_string(processes) + "-" + std::to_string(creator.id) +
         "-" + std::to_string(creator.started) + "-" + std::to_string(serial);
}

std::string Name::brief() const { return std::to_string(creator.id) + "-" + std::to_string(serial); }

bool Name::creator_alive() const {
  if (boot != boot_id()) return false;
  // Process ids of another namespace (a container that shares /dev/shm) cannot be checked here: assume that it runs.
  if (processes != process_namespace()) return true;
  return creator.alive();
}

std::vector<Name> names_present() {
  std::vector<Name> names;
  DIR* folder = ::opendir(kFolder);
  if (folder == nullptr) return names;
  const std::string ours = kPrefix + std::to_string(::getuid()) + "-";
  while (const dirent* entry = ::readdir(folder)) {
    const std::string text = entry->d_name;
    if (text.compare(0, ours.size(), ours) != 0) continue;
    try {
      names.push_back(Name::parse(text));
    } catch (const Failure&) {
      continue;  // another file with this prefix
    }
  }
  ::closedir(folder);
  return names;
}

Segment Segment::create(const Name& name, size_t bytes) {
  const std::string path = path_of(name);
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) throw_failure(path, "cannot be created", errno);
  Segment segment(file, path);
  try {
    segment.grow(bytes);
  } catch (const Failure&) {
    ::unlink(path.c_str());
    throw;
  }
  return segment;
}

Segment Segment::open(const Name& name, bool writable) {
  const std::string path = path_of(name);
  const int file = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) {
    throw Failure(path +
                  " is gone: all its ranks have joined already, or joining failed on another rank (see its error), or the "
                  "process that created it ended before any rank joined");
  }
  if (file < 0) throw_failure(path, "cannot be opened", errno);
  Segment segment(file, path);
  segment.writable_ = writable;
  segment.map_all();
  return segment;
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  std::swap(writable_, other.writable_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (file_ >= 0) ::close(file_);
}

void Segment::grow(size_t bytes) {
  reserve(bytes);
  map(bytes);
}

void Segment::map_all() {
  struct stat about;
  if (::fstat(file_, &about) != 0) throw_failure(path_, "cannot read its size", errno);
  map(static_cast<size_t>(about.st_size));
}

void Segment::reserve(size_t bytes) const {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes));
  if (error == 0) return;
  struct statvfs left;
  const uint64_t free = ::statvfs(kFolder, &left) == 0 ? uint64_t{left.f_bavail} * left.f_frsize : 0;
  throw Failure(std::string("not enough space in /dev/shm for a communicator of the simulated device: it needs ") +
                std::to_string(bytes) + " bytes, " + std::to_string(free) + " are free (" + std::strerror(error) +
                "). End other runs, use fewer groups, give the container more (docker run --shm-size=1g), or raise the limit "
                "of file sizes (ulimit -f)");
}

void Segment::map(size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) {
    data = ::mmap(nullptr, bytes, writable_ ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file_, 0);
    if (data == MAP_FAILED) throw_failure(path_, "cannot be mapped", errno);
  }
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = static_cast<char*>(data);
  size_ = bytes;
}

void unlink(const Name& name) noexcept {
  const int error = errno;
  ::unlink(path_of(name).c_str());
  errno = error;
}

}  // namespace sim::shm
