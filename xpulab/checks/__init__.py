"""State an expectation, try its control, record what was seen, and reach a verdict: what the cells of a notebook call."""
