"""The room of the chapter collectives: Collectives: how cards exchange data."""
