"""The room of the chapter export: Export a model and serve it."""
