"""What Paddle's optimizers promise of their options."""
