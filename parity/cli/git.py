"""What git says of the folder of a file."""

import shutil
import subprocess
from pathlib import Path


def git(file: Path, *words: str) -> str:
    """What git says where a file is; empty without git, or where it fails."""
    program = shutil.which("git")
    if program is None:
        return ""
    done = subprocess.run(
        [program, *words],
        cwd=file.resolve().parent,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        return ""
    return done.stdout
