"""JSON: one object a line, or a whole document."""
