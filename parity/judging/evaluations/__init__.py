"""Several runs an arm with few evaluations each: the gap as of a point, over runs and over clusters of runs, in quality and in time."""
