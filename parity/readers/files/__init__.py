"""What is inside a file, before a run is known: text, JSON, growing lines, protobuf."""
