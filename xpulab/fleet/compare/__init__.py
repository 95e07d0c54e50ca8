"""Runs side by side: machines of a fleet, releases before and after an upgrade, devices that should compute the same."""
