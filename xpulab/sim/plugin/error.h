// Errors of a simulated card: their text, their status for Paddle, and how they leave the plug-in.
#pragma once

#include <stdexcept>
#include <string>

#include "paddle/phi/backends/device_ext.h"

namespace sim {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, C_Status status = C_FAILED) : std::runtime_error(message), status(status) {}

  const C_Status status;
};

// Prints one line to stderr and keeps it as the last error of this process.
void report(const std::string& message);

// The last report; "" without one.
std::string last_error();

// Whether this process is the child of one that had used a card when it forked.
bool is_forked();

// Throws sim::Error in a child that was forked after its parent had used a card: as with a real card, nothing works there.
void require_unforked();

// Throws Paddle's own exception, which becomes a RuntimeError with this text in Python. Any other exception that passes
// through Paddle ends the process.
[[noreturn]] void throw_to_python(const std::string& message);

// Runs `body` in a callback. An exception reaches Python with its text; a status alone would only show "CustomDevice error,
// the error code is : 2". It is also reported, since some callers in Paddle hide exceptions.
template <typename Body>
C_Status guarded(Body body) {
  try {
    require_unforked();
    body();
    return C_SUCCESS;
  } catch (const std::exception& error) {
    report(error.what());
    throw_to_python(error.what());
  }
}

// As guarded, but returns a status: for callbacks from destructors and from Python's ctypes, where an exception would end
// the process.
template <typename Body>
C_Status without_throwing(Body body) noexcept {
  try {
    require_unforked();
    body();
    return C_SUCCESS;
  } catch (const Error& error) {
    report(error.what());
    return error.status;
  } catch (const std::exception& error) {
    report(error.what());
    return C_INTERNAL_ERROR;
  }
}

// For callbacks from destructors: does nothing in the child of a process that had used the card.
template <typename Body>
C_Status unless_forked(Body body) noexcept {
  return is_forked() ? C_SUCCESS : without_throwing(body);
}

}  // namespace sim
