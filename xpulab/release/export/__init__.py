"""What an exported program keeps: options, attributes, types, functions, state, and files of older releases."""
