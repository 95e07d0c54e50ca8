"""The room of the chapter distributed_checkpoints: Checkpoints of many cards."""
