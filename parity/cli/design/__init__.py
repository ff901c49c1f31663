"""Commands for the design of an experiment: `plan` and `calibrate`."""
