// The callbacks of Paddle's device interface (paddle/phi/backends/device_ext.h): each function fills those of one subject.
#pragma once

#include "paddle/phi/backends/device_ext.h"

namespace sim {

void add_devices(C_DeviceInterface* interface);
void add_streams(C_DeviceInterface* interface);
void add_memory(C_DeviceInterface* interface);
void add_copies(C_DeviceInterface* interface);
void add_collectives(C_DeviceInterface* interface);  // all xccl_*

}  // namespace sim
