"""What `parity preflight --json` prints."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from training.device import Device
from training.engines.maxtext_documents import DocumentCounts
from training.preflight.checks import KernelCheck


class PreflightReport(TypedDict):
    """The checks of each engine that was examined, on which class of devices, with the versions of
    the libraries that count, and how many seconds they took.
    """

    device_class: str
    versions: Mapping[str, str]
    seconds: float
    emulated: NotRequired[Sequence[KernelCheck]]
    transformer_engine: NotRequired[Sequence[KernelCheck]]


class DocumentsReport(TypedDict):
    """What MaxText cuts of the documents of a job, counted and in sentences."""

    documents: DocumentCounts
    sentences: list[str]


def preflight_report(
    machine: Device, seconds: float, checks: Mapping[str, Sequence[KernelCheck]]
) -> PreflightReport:
    """The report of the checks of some engines, by the engine's name."""
    report = PreflightReport(
        device_class=machine.device_class, versions=machine.versions, seconds=seconds
    )
    if "emulated" in checks:
        report["emulated"] = checks["emulated"]
    if "transformer_engine" in checks:
        report["transformer_engine"] = checks["transformer_engine"]
    return report
