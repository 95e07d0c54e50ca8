"""The room of the chapter checkpoints: Save, load, resume to the last bit."""
