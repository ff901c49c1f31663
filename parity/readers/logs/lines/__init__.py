"""Lines of printed logs: what one says, many that differ only in digits, and several ranks."""
