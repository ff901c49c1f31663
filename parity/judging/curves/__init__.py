"""Facts of runs: what the judge knows of one run, of an arm, and of two runs side by side."""
