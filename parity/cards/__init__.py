"""Verification cards: a verdict that travels, small enough for a pull request, a model card or a
paper, and what recomputes it.
"""
