"""The room of the chapter train_on_many_cards: SFT, LoRA and DPO on many cards, against one card."""
