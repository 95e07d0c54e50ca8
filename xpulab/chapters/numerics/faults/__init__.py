"""The faults of this chapter, by subject: values, precision, repeatability, operators."""
