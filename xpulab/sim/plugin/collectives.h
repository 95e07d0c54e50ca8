// The part of Paddle's device interface that is about communicators (xccl_*).
#pragma once

#include "paddle/phi/backends/device_ext.h"

namespace sim {

// Fills all xccl_* callbacks of the interface.
void add_collectives(C_DeviceInterface* interface);

}  // namespace sim

extern "C" {

// Waits, up to the time limit, until all that this process has sent is with its receivers or in their mailboxes. Returns
// how many communicators have something left. Called when a process exits; one that ends by _exit must call it itself.
int xpulab_sim_deliver();
}
