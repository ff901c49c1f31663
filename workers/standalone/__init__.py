"""The whole service on one machine: `python -m workers.standalone serve | demo`."""
