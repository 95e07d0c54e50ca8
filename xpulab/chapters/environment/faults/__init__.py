"""The faults of this chapter, by subject: the first set of values, and the cards."""
