"""Says what an operator's job file pins: `python -m server.pins parity.yaml` prints its digest, for
`job = "sha256:…"` (docs/gate.md).
"""

import argparse
import sys
from pathlib import Path

from server.jobs.pinned_fields import FREE
from server.jobs.pinned_question import PinnedFileError, digest_of, read_question


def main(arguments: list[str] | None = None) -> int:
    """Print the digest of a job file, and with `--free` which fields a gate may choose and why;
    exits 2 for a file that cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m server.pins",
        description="Print the digest of the question in a job file, for the file of gate rules.",
    )
    parser.add_argument("file", type=Path, help="job file, such as parity.yaml")
    parser.add_argument(
        "--free",
        action="store_true",
        help="also list the fields that a gate may choose, each with the reason",
    )
    options = parser.parse_args(arguments)
    try:
        print(digest_of(read_question(options.file)))
    except PinnedFileError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    if options.free:
        print(
            "\n".join(
                f"{part}.{name}\t{field.kind}\t{field.reason}"
                for part, names in FREE.items()
                for name, field in names.items()
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
