"""`python -m workers.standalone serve | demo`: see `stack`."""

import sys

from workers.standalone.stack import main

if __name__ == "__main__":
    sys.exit(main())
