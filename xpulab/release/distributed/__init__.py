"""Arguments of paddle.distributed and of fleet that no chapter gives, compared with numpy."""
