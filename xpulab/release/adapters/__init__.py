"""Adapters of PaddleNLP with options set together, on whole models, compared with numpy."""
