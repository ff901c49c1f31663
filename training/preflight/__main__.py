"""`python -m training.preflight`: examine the kernels of this machine's engines, one line a check."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict

from training import device
from training.preflight.checks import Check, examine
from training.preflight.kernels import Emulated, Kernels, TransformerEngine


def report(kernels: Kernels, *, quiet: bool) -> list[Check]:
    """Runs the checks; prints each when it ends, unless quiet."""
    done = []
    for check in examine(kernels):
        done.append(check)
        if not quiet:
            mark = "-   "
            if check.ran:
                mark = "ok  " if check.passed else "FAIL"
            sys.stdout.write(f"{mark} {kernels.name} {check.name}: {check.detail}\n")
            sys.stdout.flush()
    return done


def main(arguments: list[str] | None = None) -> int:
    """Print the checks; 0 where all passed, 1 where one failed, 2 where the engine that was asked for cannot run here."""
    parser = argparse.ArgumentParser(prog="parity preflight", description="Compare this machine's arithmetic with known answers.")
    parser.add_argument("--engine", choices=("emulated", "transformer_engine"), help="examine only this engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    began, machine = time.perf_counter(), device.describe()
    engines = [engine for engine in (Emulated(), TransformerEngine(machine)) if options.engine in (None, engine.name)]
    results = {engine.name: report(engine, quiet=options.json) for engine in engines}
    checks = [check for of_engine in results.values() for check in of_engine]
    failed, ran = sum(not check.passed for check in checks), sum(check.ran for check in checks)
    seconds = time.perf_counter() - began
    if options.json:
        listed = {name: [asdict(check) for check in of_engine] for name, of_engine in results.items()}
        sys.stdout.write(
            json.dumps({"device_class": machine.device_class, "versions": machine.versions, "seconds": seconds, **listed}) + "\n"
        )
    else:
        sys.stdout.write(f"{machine.device_class}, {machine.device_kind}: {ran} checks in {seconds:.0f} s, {failed} failed\n")
    if failed:
        return 1
    return 0 if ran else 2


if __name__ == "__main__":
    sys.exit(main())
