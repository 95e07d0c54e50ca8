"""The checks that the cells of a notebook call: compare a value, try the control, record the result, reach the verdict."""
