"""The room of the chapter pipeline: Train a model that is split into pipeline stages."""
