"""Runs in an experiment tracker (W&B, MLflow, trackio): read whole, by the tracker's own package, or refused."""

from parity.readers.trackers.run_config import FAMILY, ConfigFacts, applied, facts_of
from parity.readers.trackers.sources import SOURCES, is_source, offline_files, offline_name, read_offline, read_source, source_name

__all__ = [
    "FAMILY",
    "SOURCES",
    "ConfigFacts",
    "applied",
    "facts_of",
    "is_source",
    "offline_files",
    "offline_name",
    "read_offline",
    "read_source",
    "source_name",
]
