"""Examines the kernels of this machine's engines: `python -m training.preflight`."""
