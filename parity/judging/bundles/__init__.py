"""Evidence bundles: a verdict with all that it was computed from."""
