"""Verdicts as HTML: the first screen, the page, a notebook."""
