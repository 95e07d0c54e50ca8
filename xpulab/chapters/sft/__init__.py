"""The room of the chapter sft: Fine-tune a language model."""
