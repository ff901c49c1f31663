"""What causes a gap: the arithmetic of attribution, on numbers that a trainer measured. It gives no verdict."""
