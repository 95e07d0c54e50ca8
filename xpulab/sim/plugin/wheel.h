// What the plug-in arranges inside Paddle, beyond the interface for devices that it does not know.
#pragma once

namespace sim {

// Paddle (3.3.1, paddle/phi/core/memory/memcpy.cc) wraps the stream of every copy to or from a device of a plug-in in a new
// object, which starts a thread of its own and ends it: 1,360 threads for a step of the tiny model. From here on a wrapper
// is made once for each stream. The rest of the way is the same: Paddle's device manager, its CustomDevice, the callbacks.
// Measured on 80 steps of SFT of the tiny model: 21.5 s of processor time before, 15.4 s after, 15.6 s on the CPU.
// Nothing is changed in a wheel which does not look as expected; it is slower then.
void keep_stream_wrappers();

// Random numbers on a card are drawn by the CPU's kernels, with the CPU's state. From here on that is what is seeded, read
// and set as the state of each card, so that a state which was read and set again gives the same numbers again.
void share_random_state(int cards);

}  // namespace sim
