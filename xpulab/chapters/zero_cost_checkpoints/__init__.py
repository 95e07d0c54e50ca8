"""The room of the chapter zero_cost_checkpoints: Saving while training continues."""
