"""A comparison from what a person has and states, the same for `parity compare` and
`parity.compare`.
"""
