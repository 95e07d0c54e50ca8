// What only the device interface needs of streams and events: making them, ending them, waiting for them.
#pragma once

#include "paddle/phi/backends/device_ext.h"

namespace sim {

C_Stream open_stream(int card);
// What is queued on it is still done.
void close_stream(C_Stream stream);
bool is_idle(C_Stream stream);
// Throws why the stream has failed, or that it hangs.
void wait_for(C_Stream stream);

C_Event open_event();
void close_event(C_Event event);
void record(C_Event event, C_Stream stream);
bool has_come(C_Event event);
void wait_for(C_Event event);
// What is queued on `stream` from here on waits for the event's last recording.
void wait_for(C_Stream stream, C_Event event);

// Lets streams that have failed work again.
void forgive_all();

// At the end of the process: lets streams do what they have, as long as they get on with it, and stops them.
void stop_all() noexcept;

}  // namespace sim
