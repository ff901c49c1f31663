"""The verdict: what decides after the loss, what to do next, and its document."""
