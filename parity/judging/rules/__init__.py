"""The rules of the decision about training losses, by what they look at."""
