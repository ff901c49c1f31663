"""Commands about jobs on record: what they are found by, what people add to them, and several of them at once."""
