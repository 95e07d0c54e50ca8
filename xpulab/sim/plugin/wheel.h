// Changes inside Paddle that its device interface does not offer.
#pragma once

namespace sim {

// Paddle (3.3.1, paddle/phi/core/memory/memcpy.cc) wraps the stream of every copy to or from a custom device in a new object,
// which starts and ends a thread: 1,360 threads for one step of the tiny model. This creates one wrapper for each stream and
// reuses it. The rest of the path stays: Paddle's device manager, its CustomDevice, the callbacks.
// Measured on 80 steps of SFT of the tiny model: 21.5 s of processor time before, 15.4 s after, 15.6 s on the CPU.
// A wheel with another layout is left as it is, and is slower.
void cache_stream_wrappers();

// Makes the random state of each card that of the CPU, whose kernels draw the random numbers: seeding, reading and setting
// the state of a card then has an effect.
void share_random_state(int cards);

// Lets auto_cast and decorate use bfloat16 on simulated cards. Paddle (3.3.1, paddle/amp/auto_cast.py) has a list of the names
// of custom devices that may; this replaces the function that looks there by paddle.amp.is_bfloat16_supported, which asks the
// plug-in. It does nothing before paddle.amp is imported: call it again until the first tensor is on a card.
void let_auto_cast_ask();

}  // namespace sim
