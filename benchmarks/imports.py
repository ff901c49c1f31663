"""How long do `import parity`, parity.Run and `parity --help` take, next to `import numpy`? Each in
a process of its own.

Run: python benchmarks/imports.py. Limits are ratios of medians, measured in turns in the same run,
so that a busy machine slows both sides: `import parity` 1.3 and `parity --help` 2.0 times `import
numpy`. Which modules are imported is in tests/parity/test_imports.py.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
NUMPY = [sys.executable, "-c", "import numpy"]
LIMITS = {
    "import parity": ([sys.executable, "-c", "import parity"], 1.3),
    "parity --help": ([str(Path(sys.executable).with_name("parity")), "--help"], 2.0),
    "parity.Run": ([sys.executable, "-c", "import parity; parity.Run"], None),
    "parity.compare": ([sys.executable, "-c", "import parity; parity.compare"], None),
}


def seconds(command: list[str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print each ratio; 1 where a limit is exceeded."""
    names = ["import numpy", *LIMITS]
    commands = {"import numpy": NUMPY, **{name: command for name, (command, _) in LIMITS.items()}}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for command in commands.values():
        seconds(command)  # fills the caches of files
    for _ in range(ROUNDS):
        for name, command in commands.items():
            taken[name].append(seconds(command))
    base = statistics.median(taken["import numpy"])
    print(f"import numpy: {base:.3f} s (median of {ROUNDS})")
    ok = True
    for name, (_, limit) in LIMITS.items():
        ratio = statistics.median(taken[name]) / base
        ok = ok and (limit is None or ratio <= limit)
        words = (
            "no limit"
            if limit is None
            else f"limit {limit}: {'ok' if ratio <= limit else 'EXCEEDED'}"
        )
        print(
            f"{name}: {statistics.median(taken[name]):.3f} s, {ratio:.2f} x import numpy ({words})"
        )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
