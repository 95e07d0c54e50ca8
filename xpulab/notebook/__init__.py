"""What a notebook imports besides checks: the device, models and data, figures, crashes and workarounds."""
