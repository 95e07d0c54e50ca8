"""The faults of this chapter, by subject: the lesson, and the matrix of calls and types."""
