"""The command `compare`: what it is given, how it judges, where its verdicts go."""
