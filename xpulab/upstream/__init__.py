"""A report for the developers of Paddle: a script that shows a check's finding without xpulab, and what to write beside it."""
