"""From columns to a curve, with the checks that every file gets."""
