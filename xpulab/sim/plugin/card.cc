// See card.h.
#include "card.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "error.h"
#include "settings.h"

namespace sim {
namespace {

std::atomic<bool> in_use{false};
std::atomic<bool> forked{false};

std::vector<std::unique_ptr<Card>>* make_cards() {
  auto* made = new std::vector<std::unique_ptr<Card>>;
  for (int each = 0; each < settings().cards; ++each) made->push_back(std::make_unique<Card>(each));
  // A forked child has no threads of its parent, and locks may stay locked in it. So a child of a process that has used a
  // card must not use any. A process that has only loaded the plug-in may fork.
  pthread_atfork(nullptr, nullptr, [] { forked = in_use.load(); });
  return made;
}

}  // namespace

Card::Card(int number) : number(number), memory("card " + std::to_string(number), settings().memory_bytes) { in_use = true; }

Card& card_number(int number) {
  // Never destroyed: threads of streams may outlive main().
  static auto& cards = *make_cards();
  if (number < 0 || number >= static_cast<int>(cards.size())) {
    throw Error("there is no card " + std::to_string(number) + ", only " + std::to_string(cards.size()), C_ERROR);
  }
  return *cards[number];
}

bool is_forked() { return forked.load(std::memory_order_relaxed); }

void require_unforked() {
  if (is_forked()) {
    throw Error(
        "this process was forked after its parent had used the card, so it cannot use it, as with a real card: fork "
        "before the first use, or start a new process");
  }
}

}  // namespace sim
