// See stream.h, and events.h for what the device interface needs.
#include "stream.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "card.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "settings.h"

namespace {

struct Task {
  sim::Work work;
  sim::OnSkipped on_skipped;
  bool may_run_elsewhere;  // it never blocks: a thread that waits for the stream may run it
};

}  // namespace

// Shared by the handle that Paddle has and by the thread, which may outlive it.
struct StreamState {
  StreamState(int card, bool is_default) : card(card), is_default(is_default) {}

  const int card;
  const bool is_default;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool busy = false, closed = false, has_thread = false;
  uint64_t done = 0;
  std::string error;

  bool idle() const { return !busy && queue.empty(); }
};

struct C_Stream_st {
  std::shared_ptr<StreamState> state;
};

namespace sim {
namespace {

using Lock = std::unique_lock<std::mutex>;

std::atomic<bool> stopping{false};

// Runs a task with the lock released. The stream is not busy before and after.
void run_task(StreamState& state, Lock& lock, Task task) {
  const std::string failed = state.error;
  state.busy = true;
  lock.unlock();
  std::string error;
  try {
    if (failed.empty()) {
      task.work();
    } else if (task.on_skipped) {
      task.on_skipped(failed);
    }
  } catch (const std::exception& thrown) {
    error = thrown.what();
  } catch (...) {
    error = "an unknown exception was thrown";
  }
  task = {};  // destroys what it captured before the lock is taken
  if (!error.empty()) report("a stream of card " + std::to_string(state.card) + " has failed: " + error);
  lock.lock();
  if (state.error.empty()) state.error = error;
  state.busy = false;
  ++state.done;
  state.changed.notify_all();
}

void run_next(StreamState& state, Lock& lock) {
  Task task = std::move(state.queue.front());
  state.queue.pop_front();
  run_task(state, lock, std::move(task));
}

void run_tasks(const std::shared_ptr<StreamState>& state) {
  Lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->busy && !stopping && (state->closed || !state->queue.empty()); });
    if (state->queue.empty()) return;
    run_next(*state, lock);
  }
}

void push(const std::shared_ptr<StreamState>& state, Task task) {
  state->queue.push_back(std::move(task));
  if (!state->has_thread) {
    // Detached: a process can end although a card hangs.
    std::thread([state] { run_tasks(state); }).detach();
    state->has_thread = true;
  }
  state->changed.notify_all();
}

// Waits until the stream is idle. Returns false when it made no progress for `longest`.
bool finish(StreamState& state, Lock& lock, std::chrono::milliseconds longest) {
  while (!state.idle()) {
    if (!state.busy && state.queue.front().may_run_elsewhere && !faults::any()) {
      run_next(state, lock);
      continue;
    }
    const uint64_t before = state.done;
    const auto progress = [&] { return state.done != before || state.idle(); };
    if (!state.changed.wait_for(lock, longest, progress)) return false;
  }
  return true;
}

std::vector<std::shared_ptr<StreamState>> streams_of(Card& card) {
  std::vector<std::shared_ptr<StreamState>> found;
  std::lock_guard<std::mutex> lock(card.mutex);
  for (C_Stream stream : card.streams) found.push_back(stream->state);
  return found;
}

void wait_for(StreamState& state) {
  Lock lock(state.mutex);
  if (!finish(state, lock, stream_timeout()) && state.error.empty()) {
    state.error = "a stream of card " + std::to_string(state.card) + " hangs: no progress for " +
                  std::to_string(stream_timeout().count() / 1000) + " s (XPULAB_SIM_TIMEOUT + 2)";
  }
  if (!state.error.empty()) throw Error(state.error);
}

}  // namespace

std::chrono::milliseconds stream_timeout() { return settings().timeout + std::chrono::seconds(2); }

void enqueue(C_Stream stream, Work work) {
  std::lock_guard<std::mutex> lock(stream->state->mutex);
  push(stream->state, {std::move(work), nullptr, false});
}

bool run_now_if_short(C_Stream stream, size_t bytes, const Work& work, const OnSkipped& on_skipped) {
  if (bytes > kShortBytes || faults::any()) return false;
  const auto state = stream->state;
  Lock lock(state->mutex);
  if (!state->idle()) return false;
  run_task(*state, lock, {work, on_skipped, true});
  return true;
}

void enqueue_card_work(C_Stream stream, size_t bytes, Work work, OnSkipped on_skipped) {
  if (run_now_if_short(stream, bytes, work, on_skipped)) return;
  std::lock_guard<std::mutex> lock(stream->state->mutex);
  push(stream->state, {std::move(work), std::move(on_skipped), true});
}

int card_of(C_Stream stream) { return stream->state->card; }

bool is_default_stream(C_Stream stream) { return stream->state->is_default; }

C_Stream open_stream(int number) {
  Card& card = card_number(number);
  std::lock_guard<std::mutex> lock(card.mutex);
  auto* stream = new C_Stream_st{std::make_shared<StreamState>(number, !card.has_default_stream)};
  card.has_default_stream = true;
  card.streams.insert(stream);
  return stream;
}

void close_stream(C_Stream stream) {
  Card& card = card_number(card_of(stream));
  {
    std::lock_guard<std::mutex> lock(card.mutex);
    card.streams.erase(stream);
  }
  {
    std::lock_guard<std::mutex> lock(stream->state->mutex);
    stream->state->closed = true;
    stream->state->changed.notify_all();
  }
  delete stream;
}

bool is_idle(C_Stream stream) {
  Lock lock(stream->state->mutex);
  if (!stream->state->error.empty()) throw Error(stream->state->error);
  return stream->state->idle();
}

void wait_for(C_Stream stream) {
  const auto state = stream->state;
  wait_for(*state);
}

void drain(Card& card) {
  for (const auto& state : streams_of(card)) wait_for(*state);
}

void reset_failed_streams() {
  for (int number = 0; number < settings().cards; ++number) {
    for (const auto& state : streams_of(card_number(number))) {
      Lock lock(state->mutex);
      // First discards what is queued after the failure.
      finish(*state, lock, stream_timeout());
      state->error.clear();
    }
  }
}

void stop_streams() noexcept {
  if (is_forked()) return;
  try {
    for (int number = 0; number < settings().cards; ++number) {
      for (const auto& state : streams_of(card_number(number))) {
        Lock lock(state->mutex);
        finish(*state, lock, std::chrono::seconds(1));
      }
    }
  } catch (const std::exception&) {  // the process ends: nothing can handle the error
  }
  stopping = true;
}

}  // namespace sim
