"""`python -m training.preflight`: examine the kernels of this machine's engines, each by a question
whose answer is known; or count the documents of a job's data that MaxText cuts.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict

from pydantic import TypeAdapter

from training import device
from training.arithmetic.recipes import LinearRecipe
from training.engines import maxtext_documents
from training.engines.maxtext_documents import NotCountedError
from training.environment.maxtext_errors import MaxTextError
from training.preflight.checks import KernelCheck, Shape, examine, layers_of
from training.preflight.documents import DocumentsReport, preflight_report
from training.preflight.kernels import ENGINES, EmulatedKernels, Kernels, TransformerEngineKernels
from training.spec import JobSpec


def report(
    kernels: Kernels, layers: Mapping[tuple[LinearRecipe, Shape], str], *, quiet: bool
) -> list[KernelCheck]:
    """Runs the checks; prints each when it ends, unless quiet."""
    done = []
    for check in examine(kernels, layers):
        done.append(check)
        if not quiet:
            mark = "-   "
            if check.ran:
                mark = "ok  " if check.passed else "FAIL"
            sys.stdout.write(f"{mark} {kernels.name} {check.name}: {check.detail}\n")
            sys.stdout.flush()
    return done


def main(arguments: list[str] | None = None) -> int:
    """Print the checks; 0 where all passed, 1 where one failed, 2 where the engine that was asked
    for cannot run here.
    """
    parser = argparse.ArgumentParser(
        prog="parity preflight", description="Compare this machine's arithmetic with known answers."
    )
    parser.add_argument("--engine", choices=ENGINES, help="examine only this engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--job",
        action="store_true",
        help="examine the layers of a job, which stdin has as JSON, on its engine; of engine "
        "maxtext, count the documents that it cuts",
    )
    options = parser.parse_args(arguments)
    began, layers, engine_name = time.perf_counter(), {}, options.engine
    if options.job:
        try:
            job = TypeAdapter(JobSpec).validate_json(sys.stdin.read())
        except ValueError as error:
            sys.stderr.write(f"the job is not valid: {error}\n")
            return 2
        if job.engine == "maxtext":
            return _count_documents(job, as_json=options.json)
        if job.engine not in ENGINES:
            sys.stderr.write(
                f"job.engine is {job.engine!r}, expected {', '.join(ENGINES)} or maxtext: the "
                "kernels of other trainers are not called here\n"
            )
            return 2
        layers, engine_name = layers_of(job), job.engine
    machine = device.describe()
    engines = [
        engine
        for engine in (EmulatedKernels(), TransformerEngineKernels(machine))
        if engine_name in (None, engine.name)
    ]
    results = {engine.name: report(engine, layers, quiet=options.json) for engine in engines}
    checks = [check for engine_checks in results.values() for check in engine_checks]
    failed, ran = sum(not check.passed for check in checks), sum(check.ran for check in checks)
    seconds = time.perf_counter() - began
    if options.json:
        document = preflight_report(machine, seconds, results)
        sys.stdout.write(_json(document) + "\n")
    else:
        sys.stdout.write(
            f"{machine.device_class}, {machine.device_kind}: {ran} checks in {seconds:.0f} s, "
            f"{failed} failed\n"
        )
    if failed:
        return 1
    return 0 if ran else 2


def _count_documents(job: JobSpec, *, as_json: bool) -> int:
    """Print what MaxText cuts of a job's data; 0 where they could be counted, else 2."""
    try:
        counts = maxtext_documents.counted(job, os.environ)
    except (NotCountedError, MaxTextError) as error:
        sys.stderr.write(f"the documents were not counted: {error}\n")
        return 2
    lines = [*maxtext_documents.sentences(job, counts)]
    if as_json:
        document = DocumentsReport(documents=counts, sentences=lines)
        lines = [_json(document)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _json(document: object) -> str:
    return json.dumps(document, default=asdict, indent=1, sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
