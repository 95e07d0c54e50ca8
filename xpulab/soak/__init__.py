"""`xpulab soak`: a loop over runs of the same sections; the first value that does not repeat is named with its round."""
