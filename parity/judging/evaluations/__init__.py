"""Runs of few evaluations and many runs per arm: the gap between arms at declared points."""
