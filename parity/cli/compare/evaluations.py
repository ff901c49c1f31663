"""The comparison of held-out losses on the command line: what it refuses, judges and reports."""

import glob
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parity.cli.inputs.table_arms import TableOptions
from parity.cli.inputs.table_times import read_times
from parity.cli.terminal.option_words import OUTPUT, SERVER
from parity.cli.terminal.options import flag, option, refuse
from parity.cli.terminal.output import paths_by_name, write_file
from parity.cli.terminal.shared_options import Printing
from parity.cli.terminal.wrong_calls import UsageError
from parity.comparing.arms import Arm, refuse_unmatched_rows
from parity.comparing.statements import HELD_OUT, LOSS_KINDS, stated_multiplicity
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import AnyCase
from parity.judging.curves.reading import different_meanings
from parity.judging.document_types import VerdictDocument
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import LOSS, Policy
from parity.judging.verdict.path import with_evaluation_paths
from parity.readers.columns.names import is_held_out
from parity.report.figures.evaluation_figure import draw_evaluation_figure
from parity.report.formats.junit import render_junit
from parity.report.next_steps import typed
from parity.wording import did_you_mean

NEEDS_HELD_OUT = (
    f"needs losses of held-out data; state --loss-is {HELD_OUT}, or name their column, such as "
    "val_loss, with --loss"
)
NOT_BY_SIZE = (
    "is not used with --size-by, where each size has an end of its own; choose one size with "
    "--where to use it"
)


class Reports(Printing, panel=OUTPUT):
    """How a comparison is printed, and what else is written."""

    junit: str | None = option(None, "Also write JUnit XML to this file.", "out.xml")
    figure: str | None = option(
        None, "Also draw one figure per candidate, as .png, .svg or .pdf.", "out.pdf"
    )
    bundle: str | None = option(
        None, "Also write an evidence bundle, which `parity verify` recomputes.", "out.zip"
    )
    html: str | None = option(
        None, "Also write the page of the verdict, one file that needs no network.", "out.html"
    )
    open_page: bool = flag(
        "--open", "Open the page of the verdict; without --html it is a temporary file."
    )
    push: bool = flag(
        "--push",
        "Also record runs and verdict on the server and print the address of the page. If it "
        "breaks off, run it again.",
        rich_help_panel=SERVER,
    )

    @contextmanager
    def unwritten_page_named(self) -> Iterator[None]:
        """Where an error ends the comparison, say first that the page was not written, and whether
        one that is there is of an earlier call. The error follows, with the reason.
        """
        before = _written_at(self.html)
        try:
            yield
        except BrokenPipeError:  # the reader of the report has gone
            raise
        except Exception as error:
            is_missing = self.html is not None and _written_at(self.html) == before
            if is_missing and str(self.html) not in str(error):  # which says it itself
                older = "" if before is None else "; the file there is of an earlier call"
                print(
                    f"parity: {self.html}: not written, see the next line{older}", file=sys.stderr
                )
            raise

    def write(
        self,
        case: AnyCase,
        documents: Sequence[VerdictDocument] | Sequence[EvaluationDocument],
        draw: Callable[[Sequence[str]], None],
    ) -> None:
        """Write the bundle, the figures (`draw` takes one path per candidate) and JUnit XML, where
        they are wanted.
        """
        if self.bundle:
            write_file(self.bundle, bundle_bytes(case, documents))
        if self.figure:
            draw(
                paths_by_name(
                    self.figure, [document["candidate"]["name"] for document in documents]
                )
            )
        if self.junit:
            write_file(self.junit, render_junit(documents).encode())


def _written_at(path: str | None) -> int | None:
    """When a file was written, or the newest of those that several names make of it
    (`paths_by_name`); None where there is none.
    """
    if path is None:
        return None
    target = Path(path)
    try:
        files = [target, *target.parent.glob(f"{glob.escape(target.stem)}-*{target.suffix}")]
        return max((file.stat().st_mtime_ns for file in files if file.exists()), default=None)
    except OSError:
        return None


def holds_held_out_losses(loss_is: str | None, columns: Collection[str | None]) -> bool:
    """Whether runs hold held-out losses, as stated, else by the names of the columns that were
    named for the loss (None: none was).
    """
    if loss_is not in (None, *LOSS_KINDS):
        raise UsageError(
            f"--loss-is is {loss_is!r}; expected "
            f"{' or '.join(LOSS_KINDS)}{did_you_mean(loss_is, LOSS_KINDS)}"
        )
    if loss_is:
        return loss_is == HELD_OUT
    return any(column is not None and is_held_out(column) for column in columns)


def refuse_evaluation_options(options: TableOptions) -> None:
    """Raise UsageError where an option that only a comparison of held-out losses has was given for
    training losses.
    """
    refuse(options.given("cluster", "at", "target", "tokens_per_step", "times"), NEEDS_HELD_OUT)


def judge_evaluations(
    arms: Sequence[Arm],
    options: TableOptions,
    policy: Policy,
    planned_steps: int | None,
    look: int,
    *,
    paired: bool,
) -> tuple[EvaluationCase, list[EvaluationDocument]]:
    """Judge arms of held-out losses, baseline first: the case and one document per candidate.
    Raises UsageError or ReadError.
    """
    if checks := [check for check in policy.checks if check != LOSS]:
        raise UsageError(
            f"the policy's checks are {', '.join(checks)}, but these are held-out losses; expected "
            f"{LOSS} alone"
        )
    if (why := different_meanings(arms)) is not None:
        raise UsageError(f"{why} Name columns of one quantity (--column ARM:loss=NAME)")
    refuse_unmatched_rows(arms)
    (name, baseline), candidates = arms[0], dict(arms[1:])
    times = read_times(options, dict(arms)) if options.times else []
    try:
        case = EvaluationCase(
            baseline=baseline,
            candidates=candidates,
            policy=policy,
            baseline_name=name,
            paired=paired,
            at=_steps(options.at),
            cluster=options.cluster,
            target=options.target,
            tokens_per_step=options.tokens_per_step,
            planned_steps=planned_steps,
            times=times,
            multiplicity=stated_multiplicity(look, "--look", policy.looks, len(candidates)),
        )
        return case, case.documents()
    except ValueError as error:
        field, _, rest = str(error).partition(" ")
        raise UsageError(
            f"--{field.replace('_', '-')} {rest}"
            if field in TableOptions.__dataclass_fields__
            else str(error)
        ) from None


def report_evaluations(
    judged: Sequence[tuple[EvaluationCase, Sequence[EvaluationDocument]]],
    reports: Reports,
    command: str,
) -> None:
    """Print the documents as text, canonical JSON or Markdown, and write the reports; `command` is
    what was typed.
    """
    documents = [document for _, case_documents in judged for document in case_documents]
    if len(judged) > 1 and (one := next(iter(reports.given("bundle", "open_page").values()), None)):
        raise UsageError(f"{one} holds the comparison at one size; choose one with --where")

    def draw(paths: Sequence[str]) -> None:
        drawn = [one for case, of_case in judged for one in with_evaluation_paths(case, of_case)]
        for path, document in zip(paths, drawn, strict=True):
            draw_evaluation_figure(path, document)

    reports.write(judged[0][0], documents, draw)
    if reports.as_json:
        reports.show_verdicts(documents)
    else:
        for number, document in enumerate(documents):
            if number:
                print()
            reports.show_verdicts(typed([document], command))


def _steps(text: str | None) -> tuple[int, ...]:
    """The steps of --at."""
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) <= 16):
            raise UsageError(f"--at is {text!r}; expected one or several steps such as 1000,2000")
    return tuple(int(part) for part in parts)
