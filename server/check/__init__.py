"""Read the whole record and say what is damaged: `python -m server.check`."""
