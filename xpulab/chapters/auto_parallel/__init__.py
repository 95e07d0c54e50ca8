"""The room of the chapter auto_parallel: Place tensors on many cards, and let Paddle communicate."""
