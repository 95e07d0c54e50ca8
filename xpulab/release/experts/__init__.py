"""What PaddleNLP offers for mixtures of experts: its layer, gates and models, compared with numpy."""
