"""Runs in experiment trackers (W&B, MLflow, trackio), each read with the tracker's own package."""
