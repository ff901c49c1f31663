"""What a reader takes from a file: columns by quantity, and which rows are records of training."""
