"""What SFTTrainer, optimizers and generate promise of their options."""
