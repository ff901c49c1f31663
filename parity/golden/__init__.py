"""Golden curves: did a run of the same recipe, in other code, in another container or after a
resume, keep its numerics?

A question of its own, and never a parity pass of a precision change.
"""
