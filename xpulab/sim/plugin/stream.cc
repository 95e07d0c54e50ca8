// See stream.h and events.h: streams.
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
#include "counters.h"
#include "error.h"
#include "events.h"
#include "faults.h"
#include "settings.h"

namespace {

struct Task {
  sim::Work work;
  sim::Skipped skipped;
  bool own;  // waits for nobody, so that a waiting host may do it
};

}  // namespace

// Shared by the handle that Paddle holds and the thread that works, whichever lives longer.
struct StreamState {
  StreamState(int card, bool own_of_card) : card(card), own_of_card(own_of_card) {}

  const int card;
  const bool own_of_card;
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

// Does the task with the lock let go. The stream is not busy when it begins, and not when it ends.
void perform(StreamState& state, Lock& lock, Task task) {
  const std::string failed = state.error;
  state.busy = true;
  lock.unlock();
  std::string error;
  try {
    if (failed.empty()) {
      counters::add(state.card, counters::kTasks, 1);
      task.work();
    } else if (task.skipped) {
      task.skipped(failed);
    }
  } catch (const std::exception& thrown) {
    error = thrown.what();
  } catch (...) {
    error = "something that is no exception was thrown";
  }
  task = {};  // what it holds ends here, not under the lock
  if (!error.empty()) report("a stream of card " + std::to_string(state.card) + " has failed: " + error);
  lock.lock();
  if (state.error.empty()) state.error = error;
  state.busy = false;
  ++state.done;
  state.changed.notify_all();
}

void perform_next(StreamState& state, Lock& lock) {
  Task task = std::move(state.queue.front());
  state.queue.pop_front();
  perform(state, lock, std::move(task));
}

void work_through(const std::shared_ptr<StreamState>& state) {
  Lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->busy && !stopping && (state->closed || !state->queue.empty()); });
    if (state->queue.empty()) return;
    perform_next(*state, lock);
  }
}

void push(const std::shared_ptr<StreamState>& state, Task task) {
  state->queue.push_back(std::move(task));
  if (!state->has_thread) {
    // Detached: a process that ends does not wait for a card that hangs.
    std::thread([state] { work_through(state); }).detach();
    state->has_thread = true;
  }
  state->changed.notify_all();
}

// Until the stream is idle. False when it got nothing done for so long.
bool finish(StreamState& state, Lock& lock, std::chrono::milliseconds longest) {
  while (!state.idle()) {
    if (!state.busy && state.queue.front().own && !faults::any()) {
      perform_next(state, lock);
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
  if (!finish(state, lock, patience()) && state.error.empty()) {
    state.error = "a stream of card " + std::to_string(state.card) + " hangs: it did nothing for " +
                  std::to_string(patience().count() / 1000) + " s (XPULAB_SIM_TIMEOUT + 2)";
  }
  if (!state.error.empty()) throw Error(state.error);
}

}  // namespace

std::chrono::milliseconds patience() { return settings().patience + std::chrono::seconds(2); }

void enqueue(C_Stream stream, Work work) {
  std::lock_guard<std::mutex> lock(stream->state->mutex);
  push(stream->state, {std::move(work), nullptr, false});
}

bool done_at_once(C_Stream stream, size_t bytes, const Work& work, const Skipped& skipped) {
  if (bytes > kShortBytes || faults::any()) return false;
  const auto state = stream->state;
  Lock lock(state->mutex);
  if (!state->idle()) return false;
  perform(*state, lock, {work, skipped, true});
  return true;
}

void enqueue_own(C_Stream stream, size_t bytes, Work work, Skipped skipped) {
  if (done_at_once(stream, bytes, work, skipped)) return;
  std::lock_guard<std::mutex> lock(stream->state->mutex);
  push(stream->state, {std::move(work), std::move(skipped), true});
}

int card_of(C_Stream stream) { return stream->state->card; }

bool is_own_of_card(C_Stream stream) { return stream->state->own_of_card; }

C_Stream open_stream(int number) {
  Card& card = card_number(number);
  std::lock_guard<std::mutex> lock(card.mutex);
  auto* stream = new C_Stream_st{std::make_shared<StreamState>(number, !card.has_own_stream)};
  card.has_own_stream = true;
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

void forgive_all() {
  for (int number = 0; number < settings().cards; ++number) {
    for (const auto& state : streams_of(card_number(number))) {
      Lock lock(state->mutex);
      // What is queued behind a failure is thrown away first, as it would have been before.
      finish(*state, lock, patience());
      state->error.clear();
    }
  }
}

void stop_all() noexcept {
  if (is_forked()) return;
  try {
    for (int number = 0; number < settings().cards; ++number) {
      for (const auto& state : streams_of(card_number(number))) {
        Lock lock(state->mutex);
        finish(*state, lock, std::chrono::seconds(1));
      }
    }
  } catch (const std::exception&) {  // the process ends: nobody is left to be told
  }
  stopping = true;
}

}  // namespace sim
