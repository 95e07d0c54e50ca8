"""What auto-parallel training promises of its options, loaders and pipelines, on ranks."""
