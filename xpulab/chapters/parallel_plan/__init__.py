"""The room of the chapter parallel_plan: From a model and some cards to a configuration."""
