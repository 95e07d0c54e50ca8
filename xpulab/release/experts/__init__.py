"""What Paddle and PaddleNLP offer for mixtures of experts: their layers, gates and models, compared with numpy."""
