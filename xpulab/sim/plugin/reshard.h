// Reshard of tensors on simulated cards.
#pragma once

namespace sim {

// Makes Paddle use the plug-in's reshard for tensors on simulated cards.
void add_reshard();

}  // namespace sim
