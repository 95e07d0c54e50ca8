// Operators in place on a card without a kernel of its own.
#pragma once

namespace sim {

// Paddle (3.3.1) computes an operator that a card has no kernel for on the CPU, and copies the results to new memory of the
// card, also those of an operator in place. A tensor that is a part of a larger one then leaves it without an error: a weight
// in the buffer of a communication, rows of a table. With this, a result stays in the memory that the tensor had, where it is
// large enough, as on any device with a kernel. The version of the tensor stays, too, by which Paddle sees that a value which
// backward needs was changed.
//
// It replaces the addresses of functions in the tables through which Paddle's libraries call each other's functions. A
// wheel without these functions is left as it is, which a line on standard error says. Tensors with a placement on a mesh are,
// too.
void keep_memory_of_operators_in_place();

}  // namespace sim
