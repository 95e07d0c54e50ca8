// Streams: work is done in the order in which it was queued, each stream's on a thread of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "paddle/phi/backends/device_ext.h"

namespace sim {

using Work = std::function<void()>;
using Skipped = std::function<void(const std::string& why)>;

// Work up to so many bytes is done at once when nothing waits before it; see done_at_once.
constexpr size_t kShortBytes = 64 * 1024;

// A little longer than what a stream does may wait for others (collectives give up after `patience` or less): who knows
// why it takes so long is to say so first.
std::chrono::milliseconds patience();

// Queues `work`. An exception that it throws marks the stream as failed: nothing more is done on it, and whoever waits for
// it is told why, every time.
void enqueue(C_Stream stream, Work work);

// Does work of the card's own, a copy or a kernel, if it handles no more than kShortBytes and nothing waits before it:
// handing it to a thread takes longer. False, and nothing is done, when it must be queued. With faults present all work is
// left to the thread, so that a fault strikes there.
bool done_at_once(C_Stream stream, size_t bytes, const Work& work, const Skipped& skipped = nullptr);

// As enqueue, for the card's own copies and kernels, which wait for nobody: done at once where that can be. Somebody who
// waits for the stream does what its thread has not begun.
// `skipped` is told when the work will never be done, since work before it has failed.
void enqueue_own(C_Stream stream, size_t bytes, Work work, Skipped skipped = nullptr);

// The card that a stream belongs to.
int card_of(C_Stream stream);

// Whether it is the stream on which all is done that names no other.
bool is_own_of_card(C_Stream stream);

}  // namespace sim
