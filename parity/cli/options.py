"""Options of the command line, each declared once: a group of them is a class, and `flat` puts its
fields into a command's signature.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import typer
from rich.console import Console

from parity.cli.output import WIDTH, print_json, print_lines, print_rows
from parity.cli.terminal import FOLLOW, LABELS, OUTPUT, REUSE, SERVER, UsageError, help_all
from parity.client import DEFAULT_URL
from parity.inert import inert_value
from parity.report.json_text import render_json
from parity.report.markdown import render_markdown
from parity.report.sign_off_words import Accepted
from parity.report.terminal import plain_text, render_text
from parity.report.view import AnyDocument

Value = TypeVar("Value")


def argument(metavar: str, words: str) -> object:
    """A word of a command without an option's name, for `Annotated`."""
    return typer.Argument(metavar=metavar, help=words)


def option(
    default: Value, words: str, metavar: str | None = None, *names: str, **more: object
) -> Value:
    """An option with its help, as a field of a group or a parameter of a command; without `names`
    it is called as the field.

    `more` may hold what `typer.Option` takes, such as `min` and `max`.
    """
    return field(default=default, metadata=_metadata(names, help=words, metavar=metavar, **more))


def repeatable(words: str, metavar: str, *names: str, **more: object) -> list[str]:
    """An option that may be given several times: a list, empty where it was not given."""
    return field(
        default_factory=list, metadata=_metadata(names, help=words, metavar=metavar, **more)
    )


def flag(name: str, words: str, **more: object) -> bool:
    """An option without a value."""
    return option(False, words, None, name, **more)


def _metadata(names: Sequence[str], **more: object) -> Mapping[str, object]:
    return {"names": names, "more": more}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """A group of options that commands share: its subclasses are dataclasses; `panel` is the title
    under which the help lists them.
    """

    panel: ClassVar[str | None] = None
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, panel: str | None = None) -> None:
        cls.panel = panel or cls.panel
        dataclass(frozen=True, kw_only=True)(cls)

    def options(self) -> list[str]:
        """The names of its fields that are options; others are for commands to fill."""
        return [each.name for each in fields(self) if "more" in each.metadata]

    def given(self, *names: str) -> dict[str, str]:
        """The options that were given, of those named by their fields, or of all: as they are
        typed, by field.
        """
        every = {each.name: each for each in fields(self)}
        return {
            name: _typed(every[name]) for name in names or every if _is_given(getattr(self, name))
        }


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != []


def _typed(each: Field[Any]) -> str:
    """An option as it is typed."""
    return next(iter(each.metadata.get("names", ())), f"--{each.name.replace('_', '-')}").partition(
        "/"
    )[0]


def refuse(given: Mapping[str, str], reason: str) -> None:
    """Raise UsageError for the first option that was given; `reason` follows its name."""
    for name in given.values():
        raise UsageError(f"{name} {reason}")


def flat(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer wants it: each parameter that is a group of options becomes the fields
    of the group, in its place.

    `Annotated[Group, ("name", …)]` takes these fields alone; the others keep their defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    kinds = {
        name: kind
        for name, kind in get_type_hints(command).items()
        if isinstance(kind, type) and issubclass(kind, Options)
    }
    groups: dict[str, list[Parameter]] = {}
    parameters: list[Parameter] = []
    for own in signature(command).parameters.values():
        if own.name in kinds:
            chosen = getattr(hints[own.name], "__metadata__", (None,))[0]
            groups[own.name] = [
                each
                for each in _parameters(kinds[own.name])
                if chosen is None or each.name in chosen
            ]
            parameters += groups[own.name]
        elif isinstance(own.default, Field):
            parameters.append(_parameter(own.name, own.default, hints[own.name], None))
        else:
            parameters.append(own.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[own.name]))

    @wraps(command)
    def call(**values: object) -> int:
        made = {
            name: kinds[name](**{each.name: values.pop(each.name) for each in own})
            for name, own in groups.items()
        }
        return command(**values, **made)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def basic(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """For a `flat` command of many options: its `--help` shows those of these parameters, and
    `--help-all` shows all.
    """

    def with_both_helps(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def call(*, help_all: bool, **values: object) -> int:  # noqa: ARG001
            return command(**values)

        own = Parameter(
            "help_all",
            Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, help_all("options")],
        )
        parameters = [*signature(command).parameters.values(), own]
        call.__dict__["__signature__"] = Signature(parameters)
        call.__dict__["basic"] = {*names, "help", own.name}
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return with_both_helps


def _parameters(kind: type[Options]) -> Iterator[Parameter]:
    """The fields of a group that are options; others are for commands to fill."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        if "more" not in each.metadata:
            continue
        declared_in = next(base for base in kind.__mro__ if each.name in get_annotations(base))
        yield _parameter(each.name, each, hints[each.name], getattr(declared_in, "panel", None))


def _parameter(name: str, each: Field[Any], hint: object, panel: str | None) -> Parameter:
    default = each.default if each.default_factory is MISSING else each.default_factory()
    info = typer.Option(
        *each.metadata["names"], **{"rich_help_panel": panel, **each.metadata["more"]}
    )
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info]
    )


class Server(Options, panel=SERVER):
    """Which server is asked, and as whom."""

    server: str = option(DEFAULT_URL, "Address of the server.", "URL", envvar="PARITY_URL")
    token: str | None = option(
        None, "Bearer token, if the server requires one.", "TOKEN", envvar="PARITY_TOKEN"
    )


class Json(Options, panel=OUTPUT):
    """JSON in place of text."""

    as_json: bool = flag("--json", "Print JSON instead of text.")

    def show(self, document: object, lines: Iterable[str]) -> int:
        """Print a document as JSON, or as lines; the exit code."""
        if self.as_json:
            print_json(document)
        else:
            print_lines(lines)
        return 0

    def show_rows(
        self,
        document: object,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        headed: bool = False,
    ) -> int:
        """Print a document as JSON, or as a table (as `print_rows`); the exit code."""
        if self.as_json:
            print_json(document)
        else:
            print_rows(headings, rows, headed=headed)
        return 0


class Printing(Json):
    """How verdicts are printed."""

    markdown: bool = flag("--markdown", "Print Markdown instead of text.")
    verbose: bool = option(
        False, "Print all numbers, reasons and advice, too.", None, "--verbose", "-v"
    )
    is_silent: bool = False

    def show_verdicts(
        self, documents: Sequence[AnyDocument], accepted: Accepted | None = None
    ) -> None:
        """Print verdict documents, or comparisons of evaluations, with the sign-offs that hold."""
        if self.as_json and self.markdown:
            raise UsageError("--json and --markdown exclude each other; give only one of them")
        if self.is_silent:
            return
        if self.as_json or self.markdown:
            sys.stdout.write(
                render_json(documents, accepted)
                if self.as_json
                else render_markdown(inert_value([*documents]), accepted)
            )
        elif (console := Console(width=WIDTH, highlight=False)).is_terminal:
            console.print(
                render_text(inert_value([*documents]), WIDTH, accepted, verbose=self.verbose)
            )
        else:
            sys.stdout.write(
                plain_text(inert_value([*documents]), WIDTH, accepted, verbose=self.verbose)
            )


class Follow(Options, panel=FOLLOW):
    """How a job is followed."""

    quiet: bool = option(False, "Print no progress.", None, "--quiet", "-q")
    timeout: float | None = option(
        None, "Stop waiting after SECONDS with exit code 5; the job goes on.", "SECONDS", min=0
    )

    def progress(self) -> Console:
        """Where progress is printed."""
        return Console(stderr=True, highlight=False, markup=False, quiet=self.quiet)


class Reuse(Options, panel=REUSE):
    """Whether the baseline is trained again."""

    reuse: bool | None = option(
        None,
        "Reuse the curve of an equal, earlier baseline run. [default: yes, or the job file's]",
        None,
        "--reuse/--no-reuse",
    )


class Labels(Options, panel=LABELS):
    """What a new job is found by."""

    tag: list[str] = repeatable("Tag the new job; repeatable, adds to the file's `tags:`.", "TAG")
    branch: str | None = option(
        None, "Branch of the code. [default: the CI system's, or git's]", "NAME"
    )
