"""Searches: the fastest policy inside the margin, as a record whose next step is a function of what it holds."""
