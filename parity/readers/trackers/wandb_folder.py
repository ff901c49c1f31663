"""Which files are a run that W&B wrote offline: one file, or those of its folder in their order."""

import re
from collections.abc import Mapping
from pathlib import Path

from parity.readers.columns.several_runs import choose_run
from parity.readers.trackers import wandb_file
from parity.readers.trackers.run import TrackerRun
from parity.readers.trackers.sources import is_source


def offline_name(stem: str) -> str:
    """A short name for a run that W&B wrote to disk: its id, without the date; any other stem as it
    is.
    """
    return re.sub(r"^(?:offline-)?run-\d{8}_\d{6}-(?=.)", "", stem)


def is_run_folder(path: str) -> bool:
    """Whether a folder is that of a run that W&B wrote to disk, by its name or by what is in it."""
    folder = Path(path)
    named = re.fullmatch(r"(?:offline-)?run-\d{8}_\d{6}-.+", folder.resolve().name)
    return not offline_files(path) and (
        named is not None or (folder / "files" / "wandb-summary.json").is_file()
    )


def offline_files(path: str) -> tuple[Path, ...]:
    """The .wandb files of a path in order: the file itself, or those of a run folder or of the
    folder `wandb`; () where it has none.
    """
    if path.endswith(wandb_file.SUFFIX):
        return (Path(path),)
    folder = Path(path)
    if not folder.is_dir():
        return ()
    nested = [
        file
        for run in wandb_file.RUN_FOLDERS
        for file in folder.glob(f"{run}/*{wandb_file.SUFFIX}")
    ]
    files = {file.resolve(): file for file in (*folder.glob(f"*{wandb_file.SUFFIX}"), *nested)}
    return tuple(sorted(files.values(), key=lambda file: (_begun(file), file)))


def read_offline(path: str, run: str | None, named_columns: Mapping[str, str]) -> TrackerRun:
    """The run that W&B wrote to the files of a path; a resumed run has several, of which the later
    ones replace what they repeat.

    `run` is the id of one of several. Raises SeveralRunsError where none is named, ReadError where
    one cannot be read.
    """
    by_run: dict[str, list[Path]] = {}
    for file in offline_files(path):
        by_run.setdefault(wandb_file.run_id(file), []).append(file)
    chosen = choose_run(by_run, run, path if not is_source(f"{path}:") else f"./{path}")
    return wandb_file.read_files(path, by_run[chosen], named_columns)


def _begun(file: Path) -> str:
    """When W&B began a file, as its folder's name has it: a run may go on offline after a part that
    was sent, or the other way round.
    """
    date = re.search(r"run-(\d{8}_\d{6})-", file.resolve().parent.name)
    return date[1] if date else ""
