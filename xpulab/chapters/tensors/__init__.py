"""The room of the chapter tensors: Read, write and cut tensors."""
