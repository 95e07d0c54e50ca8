"""What save, load and resume promise of every type, option and layout."""
