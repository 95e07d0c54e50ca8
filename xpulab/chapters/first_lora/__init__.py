"""The room of the chapter first_lora: Your first LoRA."""
