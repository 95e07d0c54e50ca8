"""What SFTTrainer, recomputation and generate promise of their options."""
