"""Options of the command line: a group of them is a class, and `flat` puts its fields into a
command's signature.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_type_hints

import typer

from parity.cli.terminal.help import help_all
from parity.cli.terminal.wrong_calls import UsageError

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
        return [
            option_field.name for option_field in fields(self) if "more" in option_field.metadata
        ]

    def given(self, *names: str) -> dict[str, str]:
        """The options with another value than their default, of those named by their fields, or of
        all: as they are typed, by field.
        """
        every = {option_field.name: option_field for option_field in fields(self)}
        return {
            name: _typed(every[name])
            for name in names or every
            if getattr(self, name) != _default(every[name])
        }


def _default(option_field: Field[Any]) -> object:
    """The value of an option that was not given."""
    factory = option_field.default_factory
    return option_field.default if factory is MISSING else factory()


def _typed(option_field: Field[Any]) -> str:
    """An option as it is typed."""
    return next(
        iter(option_field.metadata.get("names", ())), f"--{option_field.name.replace('_', '-')}"
    ).partition("/")[0]


def refuse(options: Mapping[str, str], reason: str) -> None:
    """Raise UsageError for the first option that was given; `reason` follows its name."""
    for name in options.values():
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
    for declared in signature(command).parameters.values():
        if declared.name in kinds:
            chosen = getattr(hints[declared.name], "__metadata__", (None,))[0]
            groups[declared.name] = [
                parameter
                for parameter in _parameters(kinds[declared.name])
                if chosen is None or parameter.name in chosen
            ]
            parameters += groups[declared.name]
        elif isinstance(declared.default, Field):
            parameters.append(
                _parameter(declared.name, declared.default, hints[declared.name], None)
            )
        else:
            parameters.append(
                declared.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[declared.name])
            )

    @wraps(command)
    def call(**values: object) -> int:
        made = {
            name: kinds[name](**{option.name: values.pop(option.name) for option in members})
            for name, members in groups.items()
        }
        return command(**values, **made)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def basic(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """For a `flat` command of many options: its `--help` shows those of these parameters, and
    `--help-all` shows all.
    """

    def with_both_helps(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def call(*, help_all: bool, **values: object) -> int:  # noqa: ARG001
            return command(**values)

        help_option = Parameter(
            "help_all",
            Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, help_all("options")],
        )
        parameters = [*signature(command).parameters.values(), help_option]
        call.__dict__["__signature__"] = Signature(parameters)
        call.__dict__["basic"] = {*names, "help", help_option.name}
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return with_both_helps


def _parameters(kind: type[Options]) -> Iterator[Parameter]:
    """The fields of a group that are options; others are for commands to fill."""
    hints = get_type_hints(kind)
    for option_field in fields(kind):
        if "more" not in option_field.metadata:
            continue
        declared_in = next(
            base for base in kind.__mro__ if option_field.name in get_annotations(base)
        )
        yield _parameter(
            option_field.name,
            option_field,
            hints[option_field.name],
            getattr(declared_in, "panel", None),
        )


def _parameter(name: str, option_field: Field[Any], hint: object, panel: str | None) -> Parameter:
    default = (
        option_field.default
        if option_field.default_factory is MISSING
        else option_field.default_factory()
    )
    info = typer.Option(
        *option_field.metadata["names"],
        **{"rich_help_panel": panel, **option_field.metadata["more"]},
    )
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info]
    )
