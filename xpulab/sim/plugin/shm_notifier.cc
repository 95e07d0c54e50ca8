// See shm_bell.h.
#include "shm_notifier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace sim::shm {

void Notifier::notify() noexcept {
  count.fetch_add(1);
  if (waiters.load() == 0) return;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Notifier::wait(uint32_t seen, std::chrono::milliseconds longest) noexcept {
  timespec limit;
  limit.tv_sec = longest.count() / 1000;
  limit.tv_nsec = longest.count() % 1000 * 1000000;
  waiters.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count), FUTEX_WAIT, seen, &limit, nullptr, 0);
  waiters.fetch_sub(1);
}

}  // namespace sim::shm
