// A simulated card: its memory and its streams.
#pragma once

#include <mutex>
#include <set>

#include "memory.h"
#include "paddle/phi/backends/device_ext.h"

namespace sim {

struct Card {
  explicit Card(int number);

  const int number;
  Memory memory;
  std::mutex mutex;  // guards the members below
  std::set<C_Stream> streams;
  bool has_default_stream = false;  // Paddle opens the default stream first
};

// Throws sim::Error when there is no card of this number.
Card& card_number(int number);

// Waits until all streams of the card are idle. Throws sim::Error when one of them has failed.
void drain(Card& card);

}  // namespace sim
