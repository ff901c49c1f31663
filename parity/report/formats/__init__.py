"""Verdicts as text: for a terminal, a pull request, CI systems, and as JSON."""
