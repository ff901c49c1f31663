"""`python -m tools.gpu_evidence`: what a new GPU gives in its first half hour, in one command
(docs/hardware.md).

    python -m tools.gpu_evidence --minutes 25 --out DIR [--prepared FOLDER]
    python -m tools.gpu_evidence --rehearse --minutes 30 --out DIR     # on a processor, with
      stand-ins
    python -m tools.gpu_evidence --prepare FOLDER --sm 90 [--slim]     # on a machine that can
      install packages

Until the wheels of --prepared are installed, nothing but the standard library is imported.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.gpu_evidence.budget import SessionBudget, minutes
from tools.gpu_evidence.offline import OfflineError, installed, token_file
from tools.gpu_evidence.results import FolderError, new_folder
from tools.gpu_evidence.session import CANNOT_BEGIN, Session
from tools.gpu_evidence.steps import REHEARSAL_SECONDS, rehearsal, steps


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m tools.gpu_evidence",
        description="What a new GPU gives in its first half hour.",
    )
    made.add_argument(
        "--minutes",
        metavar="N",
        help="time of the whole session; what cannot end in the rest of it is not begun",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="new folder for the results, one JSON file per step, and the summary",
    )
    made.add_argument(
        "--prepared",
        type=Path,
        metavar="FOLDER",
        help="folder of --prepare: its wheels are installed, its tokens used",
    )
    made.add_argument(
        "--rehearse",
        nargs="?",
        type=float,
        const=REHEARSAL_SECONDS,
        metavar="SECONDS",
        help="run on this machine's processor, with stand-ins of about so many seconds (120) for "
        "the long parts",
    )
    made.add_argument(
        "--prepare",
        type=Path,
        metavar="FOLDER",
        help="make FOLDER with wheels and tokens instead; needs package registries",
    )
    made.add_argument(
        "--sm",
        type=int,
        default=90,
        metavar="SM",
        help="with --prepare: the GPU's compute capability without its dot (90)",
    )
    made.add_argument(
        "--slim",
        action="store_true",
        help="with --prepare: keep only that GPU's code of Transformer Engine's core library",
    )
    made.add_argument(
        "--python",
        default="3.12",
        help="with --prepare: the other machine's Python, a version or a path (3.12)",
    )
    made.add_argument(
        "--with-jax",
        action="store_true",
        help="with --prepare: also jax for processors, to rehearse in an empty environment",
    )
    made.add_argument(
        "--text",
        type=Path,
        metavar="PATH",
        help="with --prepare: a text file or a folder instead of Debian's documentation",
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Prepare, or run a session; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.prepare is not None:
            from tools.gpu_evidence.prepare import PrepareError, prepare  # noqa: PLC0415

            try:
                return prepare(
                    options.prepare,
                    sm=options.sm,
                    slim=options.slim,
                    python=options.python,
                    with_jax=options.with_jax,
                    text=options.text,
                )
            except PrepareError as error:
                sys.stderr.write(f"failed: {error}\n")
                return 1
        if options.minutes is None or options.out is None:
            raise ValueError(
                "expected --minutes N and --out DIR, such as --minutes 25 --out gpu-evidence"
            )
        if options.rehearse is not None and not options.rehearse > 0:
            raise ValueError(
                f"--rehearse is {options.rehearse:g}, expected a number above 0, such as 120"
            )
        budget = SessionBudget(minutes(options.minutes))
        tokens = token_file(options.prepared)
        folder = new_folder(options.out)
        python = installed(options.prepared, options.out / "environment", budget)
    except (ValueError, FolderError, OfflineError) as error:
        sys.stderr.write(f"refused: {error}\n")
        return CANNOT_BEGIN
    except KeyboardInterrupt:
        return 130
    if options.rehearse is None:
        chosen = steps(options.out.resolve(), tokens)
    else:
        chosen = rehearsal(options.out.resolve(), tokens, options.rehearse)
    return Session(chosen, budget, folder, python, rehearsal=options.rehearse is not None).run()


if __name__ == "__main__":
    sys.exit(main())
