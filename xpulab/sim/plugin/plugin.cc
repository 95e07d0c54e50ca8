// Where Paddle enters the plug-in.
#include <cstring>

#include "half_lists.h"
#include "interface.h"
#include "reshard.h"

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  params->device_type = const_cast<char*>("sim");
  params->sub_device_type = const_cast<char*>("v1");
  C_DeviceInterface* interface = params->interface;
  std::memset(static_cast<void*>(interface), 0, sizeof(C_DeviceInterface));
  interface->size = sizeof(C_DeviceInterface);
  sim::add_devices(interface);
  sim::add_streams(interface);
  sim::add_memory(interface);
  sim::add_copies(interface);
  sim::add_collectives(interface);
  sim::add_reshard();
  if (sim::half::is_wanted()) {
    sim::half::add_pointwise();
    sim::half::add_arrays();
    sim::half::add_training();
    sim::half::add_optimizers();
  }
}
