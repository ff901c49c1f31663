"""The modules that PARITY_TEST_REFUSED names cannot be imported, in this process and in those that
it starts.
"""

import os
import sys

sys.modules.update(dict.fromkeys(os.environ.get("PARITY_TEST_REFUSED", "").split(",")))
