"""Adapters of PaddleNLP with options set together, on a layer and on whole models, compared with numpy."""
