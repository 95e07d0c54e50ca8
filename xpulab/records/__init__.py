"""The formats that pass from the kernel to the harness: records, planned checks, known issues and baselines."""
