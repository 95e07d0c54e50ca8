// Streams and events as the device interface needs them: opening, closing, waiting.
#pragma once

#include "paddle/phi/backends/device_ext.h"

namespace sim {

C_Stream open_stream(int card);
// Work that is already queued still runs.
void close_stream(C_Stream stream);
bool is_idle(C_Stream stream);
// Throws sim::Error with the reason when the stream has failed, or when it hangs.
void wait_for(C_Stream stream);

C_Event open_event();
void close_event(C_Event event);
void record(C_Event event, C_Stream stream);
bool is_reached(C_Event event);
void wait_for(C_Event event);
// Work that is queued on `stream` from now on waits for the event's last recording.
void wait_for(C_Stream stream, C_Event event);

// Makes failed streams usable again.
void reset_failed_streams();

// At the end of the process: runs what is queued, as long as there is progress, and stops the streams.
void stop_streams() noexcept;

}  // namespace sim
