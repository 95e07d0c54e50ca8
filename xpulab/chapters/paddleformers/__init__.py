"""Chapter 19: PaddleNLP's training with its successor, in an environment of its own."""
