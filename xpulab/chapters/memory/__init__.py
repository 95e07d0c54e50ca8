"""The room of the chapter memory: Where memory goes."""
