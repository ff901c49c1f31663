"""Where the marks of the figures that the server draws stand."""
