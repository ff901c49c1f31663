"""Callbacks and helpers that log from a trainer: thin over `parity.Run`. Each module needs only the
trainer that it is named after.
"""
