"""Held-out losses of two arms: the gap as of a point, over runs and over clusters of runs, in
quality and in time.
"""
