// Injecting faults. The grammar is documented and checked in xpulab/sim/faults.py; this is what each fault does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sim::faults {

// Called before an operation. May sleep, hang until the timeout of those who wait, throw sim::Error, or end the process.
// site: "alloc", "copy", "launch" or "collective"; all but "alloc" are tasks.
void before(const char* site, const char* kind, int card);

// Called on the same thread after the operation: flips bits of the output, `data`, and sleeps for a slow card.
void after(const char* site, const char* kind, int card, void* data, size_t bytes);

// Called between both, on the same thread, by a kernel that adds `count` terms: the one with which it begins, 0 without a
// fault.
uint64_t first_term(uint64_t count);

// Replaces all faults, and restores cards that were lost. Throws sim::Error, and changes nothing, when the text is invalid.
void set(const std::string& text);

// Whether any fault is set; cheap, for the common case without faults.
bool any();

// Throws sim::Error when a fault has made the card lost.
void require_present(int card);

}  // namespace sim::faults
