"""What is measured besides the training loss: gradients, validation, downstream tasks, speed."""
