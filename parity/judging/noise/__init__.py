"""How much reruns of one recipe differ: measured, borrowed from tables, or assumed."""
