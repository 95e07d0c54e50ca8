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
  std::mutex mutex;  // guards what follows
  std::set<C_Stream> streams;
  bool has_own_stream = false;  // the first that Paddle opens: the one on which all is done unless somebody names another
};

// Throws sim::Error when there is no card of this number.
Card& card_number(int number);

// Waits until all streams of the card have done what was asked of them. Throws what went wrong on one of them.
void drain(Card& card);

}  // namespace sim
