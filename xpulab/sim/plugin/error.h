// What goes wrong on a simulated card, with what Paddle is told and what a person is.
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

// What was last reported; "" when there was nothing.
std::string last_error();

// Whether this process is the child of one that had used a card when it forked.
bool is_forked();

// Throws sim::Error in a child that was forked after its parent had used a card: as with a real one, nothing works there.
void require_unforked();

// Throws an exception of Paddle's own, which comes out in Python as a RuntimeError with this text. Others must not pass
// through Paddle: it ends the process.
[[noreturn]] void throw_to_python(const std::string& message);

// Calls `body` for Paddle. What it throws comes out in Python with its text, where a status alone would come out as
// "CustomDevice error, the error code is : 2". It is reported too, since Paddle calls from where nobody sees an exception.
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

// As guarded, where Paddle calls from a destructor, or C from Python: there an exception would end the process.
template <typename Body>
C_Status unthrown(Body body) noexcept {
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

// For what Paddle calls from destructors: a child of a process that had used the card lets everything be.
template <typename Body>
C_Status quietly(Body body) noexcept {
  return is_forked() ? C_SUCCESS : unthrown(body);
}

}  // namespace sim
