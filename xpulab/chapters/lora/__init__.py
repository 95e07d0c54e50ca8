"""The room of the chapter lora: Adapt a model with LoRA."""
