"""Many machines, and the last verdict of one: reads reports, measures nothing, and imports neither Paddle nor a notebook."""
