"""The faults of this chapter, by subject: one process, and ranks."""
