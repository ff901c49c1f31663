"""The service: its record, its REST API and its pages."""

import atexit
import gc

# Importing the service makes objects by the million and few cycles; looking for those took a
# twentieth of the start of its processes.
gc.set_threshold(50_000, 10, 10)
# At exit, when all memory is given back anyway, that search took a fifth of the time of a start and
# an end.
atexit.register(gc.freeze)
