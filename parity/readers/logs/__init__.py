"""Logs of trainers: printed lines, JSON, TensorBoard's event files and MLPerf's events."""
