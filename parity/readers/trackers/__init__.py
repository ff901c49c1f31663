"""Runs in an experiment tracker (W&B, MLflow, trackio): read whole, by the tracker's own package, or refused."""

from parity.readers.trackers.run_config import Stated, applied, stated_by
from parity.readers.trackers.sources import SOURCES, is_source, offline_files, read_offline, read_source, source_name

__all__ = ["SOURCES", "Stated", "applied", "is_source", "offline_files", "read_offline", "read_source", "source_name", "stated_by"]
