"""The gap between two arms: its interval, and what would move it."""
