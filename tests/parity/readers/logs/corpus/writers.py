"""What writes losses: libraries of Python that are installed here, or a line's format."""

import csv
import io
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from absl import logging as absl_logging
from rich.console import Console

from tests.parity.readers.logs.corpus.form import Losses, Writer


def write_by_logging(path: Path, first: int, losses: Losses) -> None:
    logger, handler = logging.Logger("train"), logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    logger.addHandler(handler)
    for step, loss in enumerate(losses, first):
        logger.info("step %d loss=%r lr=%.2e", step, loss, 3e-4)
    handler.close()


def write_by_absl(path: Path, first: int, losses: Losses) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(absl_logging.PythonFormatter())
    for step, loss in enumerate(losses, first):
        handler.emit(
            logging.LogRecord(
                "absl", logging.INFO, "train.py", 99, "step: %d, loss: %r", (step, loss), None
            )
        )
    path.write_text(stream.getvalue())


def write_by_rich(path: Path, first: int, losses: Losses) -> None:
    with path.open("w") as stream:
        console = Console(file=stream, force_terminal=True, width=120)
        for step, loss in enumerate(losses, first):
            console.log(f"[bold]step[/bold] {step} [green]loss[/green] {loss!r}")


def rows_of(first: int, losses: Losses) -> list[dict[str, float]]:
    return [{"step": step, "loss": loss, "lr": 3e-4} for step, loss in enumerate(losses, first)]


def frame_of(first: int, losses: Losses) -> pd.DataFrame:
    return pd.DataFrame(rows_of(first, losses))


def write_by_csv_module(path: Path, first: int, losses: Losses) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ("step", "loss", "lr"), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows_of(first, losses))


def write_zipped(path: Path, first: int, losses: Losses) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metrics.csv", frame_of(first, losses).to_csv(index=False))


def text_writer(form: Callable[[int, Losses], str]) -> Writer:
    return lambda path, first, losses: path.write_text(form(first, losses))


def line_writer(form: Callable[[int, float], str], header: str = "") -> Writer:
    return text_writer(
        lambda first, losses: (
            header + "".join(f"{form(step, loss)}\n" for step, loss in enumerate(losses, first))
        )
    )
