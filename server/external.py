"""Runs that the user trains."""
