// Events; see events.h.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "error.h"
#include "events.h"
#include "stream.h"

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  std::string error;  // why the work before it did not run
};

struct C_Event_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace sim {
namespace {

using Lock = std::unique_lock<std::mutex>;

void wait_until(EventState& state, uint64_t ticket) {
  Lock lock(state.mutex);
  if (!state.changed.wait_for(lock, stream_timeout(), [&] { return state.reached >= ticket; })) {
    throw Error("an event was not reached within " + std::to_string(stream_timeout().count() / 1000) +
                " s (XPULAB_SIM_TIMEOUT + 2): the stream on which it was recorded hangs");
  }
  if (!state.error.empty()) throw Error(state.error);
}

}  // namespace

C_Event open_event() { return new C_Event_st; }

void close_event(C_Event event) { delete event; }

void record(C_Event event, C_Stream stream) {
  const auto state = event->state;
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    ticket = ++state->recorded;
  }
  const auto reach = [state, ticket](const std::string& error) {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->reached = std::max(state->reached, ticket);
    state->error = error;
    state->changed.notify_all();
  };
  enqueue_card_work(stream, 0, [reach] { reach(""); }, reach);
}

bool is_reached(C_Event event) {
  std::lock_guard<std::mutex> lock(event->state->mutex);
  return event->state->reached >= event->state->recorded;
}

void wait_for(C_Event event) {
  const auto state = event->state;
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    ticket = state->recorded;
  }
  wait_until(*state, ticket);
}

void wait_for(C_Stream stream, C_Event event) {
  const auto state = event->state;
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    ticket = state->recorded;
    if (state->reached >= ticket && state->error.empty()) return;
  }
  enqueue(stream, [state, ticket] { wait_until(*state, ticket); });
}

}  // namespace sim
