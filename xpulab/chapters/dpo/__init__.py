"""The room of the chapter dpo: Teach a model what is preferred."""
