// Streams: each runs its work on a thread of its own, in the order in which it was queued.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "paddle/phi/backends/device_ext.h"

namespace sim {

using Work = std::function<void()>;
using OnSkipped = std::function<void(const std::string& why)>;

// Work on up to so many bytes is short; see run_now_if_short.
constexpr size_t kShortBytes = 64 * 1024;

// How long a wait for a stream lasts at most. Longer than the timeout of collectives, which know the cause and report it.
std::chrono::milliseconds stream_timeout();

// Queues `work`. If it throws, the stream has failed: nothing more runs on it, and every wait for it throws the reason.
void enqueue(C_Stream stream, Work work);

// Runs a copy or a kernel on the calling thread if it handles at most kShortBytes and the stream is idle: this is faster
// than queueing it. Returns false, without running it, when it must be queued. While faults are set everything is queued,
// so that faults are injected on the stream's thread.
bool run_now_if_short(C_Stream stream, size_t bytes, const Work& work, const OnSkipped& on_skipped = nullptr);

// As enqueue, for copies and kernels, which never block: short work runs at once where possible, and a thread that waits
// for the stream runs what the stream's thread has not started.
// on_skipped is called with the reason when the work will not run, because work before it has failed.
void enqueue_card_work(C_Stream stream, size_t bytes, Work work, OnSkipped on_skipped = nullptr);

// The card that a stream belongs to.
int card_of(C_Stream stream);

// Whether it is the default stream, which is used wherever no other stream is named.
bool is_default_stream(C_Stream stream);

}  // namespace sim
