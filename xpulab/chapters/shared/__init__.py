"""What two or more chapters use: the device, models, figures, files to take home, workarounds, and what a fault is."""
