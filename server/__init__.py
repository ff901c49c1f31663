"""The service: its record, its REST API and its pages."""

import atexit
import gc

# Importing the service makes objects by the million and few cycles; looking for those took a twentieth of the start of its processes.
gc.set_threshold(50_000, 10, 10)
# Nor are they looked for at the end, when the process gives all of its memory back: that took a fifth of the start and the end together.
atexit.register(gc.freeze)
