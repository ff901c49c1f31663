"""The service: its database, its REST API, its pages, and the judge's place in it."""

import gc

# Importing the service makes objects by the million and few cycles; looking for those took a tenth of the start of each of its processes.
gc.set_threshold(50_000, 10, 10)
