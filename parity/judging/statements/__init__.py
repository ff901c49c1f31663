"""What a person may state of a comparison for nothing: how it is written and what it would do."""
