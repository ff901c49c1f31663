"""Tables of many runs: arms, runs, sizes of models, and times."""
