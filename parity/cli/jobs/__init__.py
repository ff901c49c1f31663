"""Commands for jobs on a server: queue, follow, list, compare and annotate them."""
