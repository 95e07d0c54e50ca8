"""What else a notebook imports: the device, models and data, figures, workarounds."""
