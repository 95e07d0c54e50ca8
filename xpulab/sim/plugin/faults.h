// Faults on demand. The grammar is documented and checked in xpulab/sim/faults.py; here is what each fault does.
#pragma once

#include <cstddef>
#include <string>

namespace sim::faults {

// Where something can go wrong: "alloc", "copy", "launch", "collective". All but "alloc" are tasks.
// Called before the thing is done. May sleep, throw sim::Error, end the process, or wait until the wait is given up.
// data: where the result will be; nullptr when there is none.
void before(const char* site, const char* kind, int card, void* data, size_t bytes);

// Called on the same thread when it is done: flips bits in the result, and makes a slow card slow.
void after(const char* site, const char* kind, int card, void* data, size_t bytes);

// Replaces all faults, and brings back cards that were lost. Throws sim::Error when the text is malformed; then nothing
// was replaced.
void set(const std::string& text);

// Whether there is any, so that the common case costs nothing.
bool any();

// Throws sim::Error when a fault has taken the card away.
void require_present(int card);

}  // namespace sim::faults
