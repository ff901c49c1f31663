"""The service: its record, its REST API and its pages."""

import gc

# Importing the service makes objects by the million and few cycles; looking for those took a twentieth of the start of its processes.
gc.set_threshold(50_000, 10, 10)
