"""Launchers: how the operator of a worker lets jobs start trainers. Read from one TOML file,
`PARITY_LAUNCHERS`.

    [launcher.loop]
    repository = "https://git.example/team/model.git"
    refs = ["refs/heads/*"]                     # on one of these a commit must be
    paths = ["train", "configs"]                # what decides the training; default: the whole tree
    command = ["/opt/torch/bin/python", "train.py", "--steps={steps}", "--seed={seed}",
    "--layers={layers}", "--out={output}"]
    recipes = {bf16 = [], nvfp4 = ["--recipe=nvfp4"]}        # what each adds to the command
    then = ["--then={then_recipe}", "--from={then_step}"]    # how it is told an arm's later recipe
    parameters = {layers = {type = "int", min = 1, max = 128, default = 32}}
    reports = {path = "metrics.jsonl"}          # below {output}, or "stdout"; `layers` names the
      folder below it with the logs of Transformer Engine's debug tool
    pinned = "sha256:…"                         # names the libraries, such as an image's digest;
      without it no curve is reused
    limits = {seconds = 86400, silent_seconds = 1800, output_bytes = 1e11}
    scheduler = "slurm"                         # trains on a cluster, not on the worker
    slurm = {options = ["--partition=gpu", "--gpus-per-node=8", "--requeue"]}
                                                # or "kubernetes", with kubernetes = {template =
                                                "/etc/parity/job.yaml", namespace = "ml"}

A brace stands for one value, and an entry stays one argument: there is no shell. The braces are
{source} (the checkout), {output} (the attempt's folder), {checkpoints} (the run's folder, which its
next attempt finds again), {steps}, {warmup_steps}, {seed}, {replicate}, {recipe} and the launcher's
parameters. Whatever is wrong in the file is an error when it is read, not when a job comes.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from parity.canonical_json import canonical_json, fields_of
from parity.frozen import frozen
from parity.readers.columns.names import LOSS, STEP
from parity.recipes import RecipeError, check_recipe
from parity.typed_json import check_words, known_keys, typed
from training.command import Value, check_name, check_value
from training.rules import SpecError
from training.spec import RunSpec

STDOUT = "stdout"
_BRACE = re.compile(r"\{([^{}]*)\}")
_OURS = frozenset(
    {"source", "output", "checkpoints", "steps", "warmup_steps", "seed", "replicate", "recipe"}
)
_THEN = frozenset({"then_recipe", "then_step", "then_gemms"})  # of the arguments `then` alone
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of the worker, which a trainer gets; everything else is the launcher's own.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
# where anybody may put a commit
_UNTRUSTED_REFS = ("refs/pull/1/head", "refs/merge-requests/1/head", "refs/changes/1")
LONGEST_ARGUMENT = 4096
SCHEDULERS = ("slurm", "kubernetes")
# Options of sbatch that decide what a job is known by, what it runs, and that it is one job which
# waits for its release.
_OUR_OPTIONS = (
    *(
        "array",
        "chdir",
        "clusters",
        "error",
        "export",
        "export-file",
        "hold",
        "input",
        "job-name",
        "open-mode",
        "output",
        "parsable",
    ),
    *("quiet", "test-only", "uid", "wait", "wrap", "help", "usage", "version", "ignore-pbs"),
)


_LAYERS_FOLDER = "a folder below the output folder, such as nvdlfw_inspect_statistics_logs"


class LauncherError(ValueError):
    """A launcher that cannot be read, or a job that does not fit one; `code` is the run's."""

    def __init__(self, message: str, code: str = "LAUNCHER_REFUSED") -> None:
        super().__init__(message)
        self.code = code


def _refusal(place: str, value: object, expected: str) -> LauncherError:
    return LauncherError(f"{place} is {value!r:.200}, expected {expected}")


@frozen
class Parameter:
    """A value that a job may set: its type, its range or its choices, and its default; without one
    a job must set it.
    """

    type: Literal["int", "float", "bool", "choice", "name"]
    min: float | None = None
    max: float | None = None
    choices: tuple[str, ...] = ()
    default: Value | None = None

    def checked(self, where: str, value: object) -> str:
        """The value as text for a command. Raises LauncherError, PARAMETER_REFUSED, for one that
        does not fit.
        """
        expected = self._expected()
        fits = {
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, (int, float)) and not isinstance(value, bool),
            "bool": isinstance(value, bool),
            "choice": value in self.choices,
            "name": isinstance(value, str),
        }[self.type]
        if not fits:
            raise LauncherError(
                f"{where} is {value!r:.200}, expected {expected}", "PARAMETER_REFUSED"
            )
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            if (self.min is not None and value < self.min) or (
                self.max is not None and value > self.max
            ):
                raise LauncherError(f"{where} is {value}, expected {expected}", "PARAMETER_REFUSED")
            return str(value)
        assert isinstance(value, str)  # noqa: S101
        try:
            check_value(where, value)
            check_name(where, value.replace("/", "_"), expected)
        except SpecError as error:
            raise LauncherError(str(error), "PARAMETER_REFUSED") from None
        return value

    def _expected(self) -> str:
        if self.type == "choice":
            return f"one of {', '.join(self.choices)}"
        limits = [f"from {self.min:g}"] if self.min is not None else []
        limits += [f"up to {self.max:g}"] if self.max is not None else []
        kinds = {
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "name": "a name of letters, digits and _ . - /",
        }
        return " ".join([kinds[self.type], *limits])


@frozen
class ReportSource:
    """Where the trainer's losses stand: a file below {output}, or its standard output; `pattern`
    finds them in lines of a log. `layers` is the folder below {output} with the statistics of
    Transformer Engine's debug tool; "" for none.
    """

    path: str
    pattern: str = ""
    layers: str = ""


@frozen
class Limits:
    """Seconds of one attempt, seconds without a new line, and bytes below {output}."""

    seconds: float = 7 * 86_400.0
    silent_seconds: float = 1800.0
    output_bytes: float = 1e11


@frozen
class SlurmOptions:
    """How jobs are submitted to Slurm: further options of `sbatch`, in their long form."""

    options: tuple[str, ...] = ()


@frozen
class KubernetesOptions:
    """How jobs are submitted to Kubernetes: the template of the Job (a file of YAML), and how
    kubectl finds the cluster.
    """

    template: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """What the template has."""


@frozen
class RecipeArguments:
    """What a recipe adds: arguments at the end of the command, and variables of the environment."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@frozen
class Launcher:
    """One launcher. `digest` names all that it says, so that a run is known to have been started by
    it.
    """

    name: str
    repository: str
    command: tuple[str, ...]
    recipes: Mapping[str, RecipeArguments]
    reports: ReportSource
    then: tuple[str, ...] = ()
    refs: tuple[str, ...] = ("refs/heads/*",)
    paths: tuple[str, ...] = (".",)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Limits = Limits()
    pinned: str = ""
    device_class: str = ""
    user: str = ""
    isolated: bool = False
    git_config: str = ""
    scheduler: str = ""
    slurm: SlurmOptions = SlurmOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    digest: str = ""

    def document(self) -> dict[str, Any]:
        """What the server is told of it: what a job may ask for, and no command, path or
        variable.
        """
        asked = {name: parameter._expected() for name, parameter in self.parameters.items()}
        environments = sorted(self.environments)
        where = {"scheduler": self.scheduler} if self.scheduler else {}
        return {
            "digest": self.digest,
            "recipes": [*self.recipes],
            "parameters": asked,
            "environments": environments,
            "then": bool(self.then),
            **where,
        }

    @property
    def submits_with(self) -> dict[str, Any]:
        """What its scheduler is told of every job."""
        return fields_of(self.kubernetes if self.scheduler == "kubernetes" else self.slurm)

    def check(self, spec: RunSpec) -> dict[str, str]:
        """The values of the braces that a run sets. Raises LauncherError for a recipe, parameter or
        environment that it has not.
        """
        assert spec.command is not None  # noqa: S101
        where = f"launcher {self.name}"
        if spec.recipe not in self.recipes:
            raise LauncherError(
                f"{where} has no recipe {spec.recipe}, expected one of {', '.join(self.recipes)}",
                "RECIPE_REFUSED",
            )
        if spec.then is not None and not self.then:
            raise LauncherError(
                f"{where} has no `then`, so its trainer cannot go on with another recipe; expected "
                "the arguments that tell it to, or a job without `then`",
                "RECIPE_REFUSED",
            )
        if spec.then is not None and spec.then.recipe not in self.recipes:
            raise LauncherError(
                f"{where} has no recipe {spec.then.recipe} to go on with, expected one of "
                f"{', '.join(self.recipes)}",
                "RECIPE_REFUSED",
            )
        if spec.environment and spec.environment not in self.environments:
            names = ", ".join(self.environments) or "none, as it has no environments"
            raise LauncherError(
                f"{where} has no environment {spec.environment!r}, expected {names}",
                "PARAMETER_REFUSED",
            )
        parameters = spec.command.parameters
        if unknown := parameters.keys() - self.parameters.keys():
            names = ", ".join(self.parameters) or "none"
            raise LauncherError(
                f"{where} has no parameter {min(unknown)!r}, expected {names}", "PARAMETER_REFUSED"
            )
        values = {}
        for name, parameter in self.parameters.items():
            value = parameters.get(name, parameter.default)
            if value is None:
                raise LauncherError(
                    f"parameter {name} of {where} has no value and no default; set "
                    f"command.parameters.{name}",
                    "PARAMETER_REFUSED",
                )
            values[name] = parameter.checked(f"command.parameters.{name}", value)
        return values

    def argv(self, spec: RunSpec, places: Mapping[str, str]) -> list[str]:
        """The command of a run; `places` are {source}, {output} and {checkpoints}. One entry of the
        file is one argument.
        """
        values = {
            **self.check(spec),
            **places,
            "steps": str(spec.schedule.steps),
            "warmup_steps": str(spec.schedule.warmup_steps),
            "seed": str(spec.seed),
            "replicate": str(spec.replicate),
            "recipe": spec.recipe,
        }
        arguments = [*self.command, *self.recipes[spec.recipe].arguments]
        if spec.then is not None:
            arguments += self.then
            values |= {
                "then_recipe": spec.then.recipe,
                "then_step": str(spec.then.from_step),
                "then_gemms": spec.then.gemms,
            }
        return [_BRACE.sub(lambda brace: values[brace[1]], argument) for argument in arguments]

    def variables(
        self, spec: RunSpec, places: Mapping[str, str], inherited: Mapping[str, str] = os.environ
    ) -> dict[str, str]:
        """The complete environment of the trainer: of the worker's only what finds programs and
        libraries, none of its secrets.
        """
        passed = {name: inherited[name] for name in _INHERITED if name in inherited}
        stated = {
            **self.environment,
            **self.recipes[spec.recipe].environment,
            **self.environments.get(spec.environment, {}),
        }
        filled = {
            name: _BRACE.sub(lambda brace: places.get(brace[1], brace[0]), value)
            for name, value in stated.items()
        }
        home = {"HOME": places["output"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
        return passed | home | filled


def allows(launcher: Launcher, ref: str) -> bool:
    """Whether a ref of the repository is one that may be trained."""
    return any(fnmatchcase(ref, pattern) for pattern in launcher.refs)


def read_launchers(path: Path) -> dict[str, Launcher]:
    """The launchers of a file, by name. Raises LauncherError that names the place, the value and
    what was expected.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise LauncherError(
            f"{path}: {why}; expected a TOML file with tables such as [launcher.loop] "
            "(docs/launchers.md)"
        ) from None
    tables = content.get("launcher")
    if not isinstance(tables, dict) or not tables or content.keys() != {"launcher"}:
        raise LauncherError(
            f"{path}: expected tables [launcher.NAME] and nothing else (docs/launchers.md)"
        )
    try:
        return {name: _launcher(name, table) for name, table in tables.items()}
    except LauncherError as error:
        raise LauncherError(f"{path}: {error}") from None


def _launcher(name: str, table: object) -> Launcher:
    place = f"launcher.{name}"
    entries = dict(known_keys(table, Launcher, place, _refusal))
    for derived in ("name", "digest"):
        if derived in entries:
            raise _refusal(
                f"{place}.{derived}", entries[derived], "nothing: it follows from the table"
            )
    try:
        check_name(place, name, "a name")
    except SpecError as error:
        raise LauncherError(str(error)) from None
    for needed in ("repository", "command", "recipes", "reports"):
        if needed not in entries:
            raise _refusal(f"{place}.{needed}", None, "to be set")
    read = {
        "repository": lambda value, where: typed(
            value, str, where, "the URL of a git repository", _refusal
        ),
        "command": _texts,
        "recipes": _recipes,
        "then": _texts,
        "reports": _reports,
        "refs": _texts,
        "paths": _paths,
        "parameters": _parameters,
        "environment": _variables,
        "environments": lambda value, where: {
            key: _variables(variables, f"{where}.{key}")
            for key, variables in _table(value, where).items()
        },
        "limits": _limits,
        "scheduler": _scheduler,
        "slurm": _slurm,
        "kubernetes": _kubernetes,
    }
    plain = {
        field.name: bool if field.name == "isolated" else str
        for field in fields(Launcher)
        if field.name not in read
    }
    values: dict[str, Any] = {
        key: read[key](value, f"{place}.{key}")
        if key in read
        else typed(value, plain[key], f"{place}.{key}", refuse=_refusal)
        for key, value in entries.items()
    }
    template = values["kubernetes"].manifest if "kubernetes" in values else {}
    stated = {**_table(table, place), **({"template": template} if template else {})}
    launcher = Launcher(
        name=name, **values, digest=hashlib.sha256(canonical_json(stated).encode()).hexdigest()[:32]
    )
    _check(launcher, place)
    return launcher


def _check(launcher: Launcher, place: str) -> None:
    """What only all keys together can say."""
    if launcher.repository.startswith("-") or "::" in launcher.repository:
        raise _refusal(
            f"{place}.repository",
            launcher.repository,
            "a URL or a path, and no remote helper such as ext::",
        )
    untrusted = next(
        (
            ref
            for ref in launcher.refs
            if any(fnmatchcase(untrusted_ref, ref) for untrusted_ref in _UNTRUSTED_REFS)
        ),
        None,
    )
    if untrusted is not None and not launcher.user and not launcher.isolated:
        raise _refusal(
            f"{place}.refs",
            untrusted,
            "branches of the repository alone: there anybody may put a commit, and a commit is "
            "code that runs as the worker's user. "
            'Set user = "NAME" (the worker runs as root), or isolated = true where the command '
            "starts a container",
        )
    _check_scheduler(launcher, place)
    braces = _OURS | launcher.parameters.keys()
    if doubled := (_OURS | _THEN) & launcher.parameters.keys():
        raise _refusal(
            f"{place}.parameters.{min(doubled)}", "a parameter", "another name: this one is ours"
        )
    for key, arguments, known in (
        ("command", launcher.command, braces),
        ("then", launcher.then, braces | _THEN),
        *(
            (f"recipes.{name}", recipe.arguments, braces)
            for name, recipe in launcher.recipes.items()
        ),
    ):
        for argument in arguments:
            if len(argument) > LONGEST_ARGUMENT or not argument.isprintable():
                raise _refusal(
                    f"{place}.{key}",
                    argument,
                    f"arguments of at most {LONGEST_ARGUMENT} printable characters",
                )
            if unknown := [brace for brace in _BRACE.findall(argument) if brace not in known]:
                raise _refusal(
                    f"{place}.{key}",
                    argument,
                    f"no brace but {{{'}, {'.join(sorted(known))}}}; {{{unknown[0]}}} is none",
                )
    if not launcher.command:
        raise _refusal(f"{place}.command", [], "a program and its arguments")
    if not launcher.recipes:
        raise _refusal(f"{place}.recipes", {}, "a recipe at least")


def _check_scheduler(launcher: Launcher, place: str) -> None:
    """What a launcher that submits its trainers cannot have, or needs."""
    for name, is_set in (
        ("slurm", launcher.slurm != SlurmOptions()),
        ("kubernetes", launcher.kubernetes != KubernetesOptions()),
    ):
        if is_set and launcher.scheduler != name:
            raise _refusal(
                f"{place}.scheduler", launcher.scheduler, f'"{name}", as there is a table for it'
            )
    if launcher.scheduler == "kubernetes" and not launcher.kubernetes.template:
        raise _refusal(
            f"{place}.kubernetes.template", "", "the path of a file of YAML with the Job"
        )
    if launcher.scheduler and launcher.user:
        raise _refusal(
            f"{place}.user",
            launcher.user,
            "nothing: a job of a scheduler runs as the worker's user; give that an account of its "
            "own",
        )
    if launcher.scheduler and not launcher.device_class:
        expected = (
            "what the nodes have, such as '8 x H100': the worker cannot ask them before a run, and "
            "other devices are no pair"
        )
        raise _refusal(f"{place}.device_class", launcher.device_class, expected)


def _table(value: object, where: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = typed(value, dict, where, "a table", _refusal)
    return table


def _texts(value: object, where: str) -> tuple[str, ...]:
    return tuple(
        typed(text, str, where, "a list of texts", _refusal)
        for text in typed(value, list, where, "a list of texts", _refusal)
    )


def _paths(value: object, where: str) -> tuple[str, ...]:
    paths = _texts(value, where)
    for path in paths:
        parts = PurePosixPath(path).parts
        if not path or path.startswith(("/", ":")) or ".." in parts:
            raise _refusal(where, path, "folders and files of the repository, such as train")
    if not paths:
        raise _refusal(where, [], "a path at least; leave it out for the whole tree")
    return paths


def _variables(value: object, where: str) -> Mapping[str, str]:
    found = {}
    for name, text in _table(value, where).items():
        if not _VARIABLE.fullmatch(name):
            raise _refusal(where, name, "names of variables")
        found[name] = typed(text, str, f"{where}.{name}", "text", _refusal)
    return found


def _recipes(value: object, where: str) -> Mapping[str, RecipeArguments]:
    found = {}
    for name, recipe in _table(value, where).items():
        try:
            check_recipe(name, where)
        except RecipeError as error:
            raise LauncherError(str(error)) from None
        if isinstance(recipe, list):
            found[name] = RecipeArguments(arguments=_texts(recipe, f"{where}.{name}"))
            continue
        table = known_keys(recipe, RecipeArguments, f"{where}.{name}", _refusal)
        arguments = _texts(table.get("arguments", []), f"{where}.{name}.arguments")
        found[name] = RecipeArguments(
            arguments=arguments,
            environment=_variables(table.get("environment", {}), f"{where}.{name}.environment"),
        )
    return found


def _reports(value: object, where: str) -> ReportSource:
    table = known_keys(value, ReportSource, where, _refusal)
    reports = ReportSource(
        path=typed(
            table.get("path"),
            str,
            f"{where}.path",
            f"a file below the output folder, or {STDOUT}",
            _refusal,
        ),
        pattern=typed(
            table.get("pattern", ""), str, f"{where}.pattern", "a regular expression", _refusal
        ),
        layers=typed(table.get("layers", ""), str, f"{where}.layers", _LAYERS_FOLDER, _refusal),
    )
    layers = PurePosixPath(reports.layers)
    if reports.layers and (layers.is_absolute() or ".." in layers.parts or not layers.parts):
        raise _refusal(f"{where}.layers", reports.layers, _LAYERS_FOLDER)
    path = PurePosixPath(reports.path)
    if reports.path != STDOUT and (path.is_absolute() or ".." in path.parts or not path.parts):
        raise _refusal(
            f"{where}.path",
            reports.path,
            f"a file below the output folder, such as metrics.jsonl, or {STDOUT}",
        )
    if reports.pattern:
        try:
            groups = re.compile(reports.pattern).groupindex
        except re.error as error:
            raise _refusal(
                f"{where}.pattern", reports.pattern, f"a regular expression ({error})"
            ) from None
        if missing := {STEP, LOSS} - groups.keys():
            raise _refusal(
                f"{where}.pattern", reports.pattern, f"a group (?P<{min(missing)}>…) in it"
            )
    return reports


def _parameters(value: object, where: str) -> Mapping[str, Parameter]:
    found = {}
    for name, table in _table(value, where).items():
        place = f"{where}.{name}"
        try:
            check_name(place, name, "a name")
        except SpecError as error:
            raise LauncherError(str(error)) from None
        entries = dict(known_keys(table, Parameter, place, _refusal))
        if "type" not in entries:
            raise _refusal(f"{place}.type", None, "int, float, bool, choice or name")
        if "choices" in entries:
            entries["choices"] = _texts(entries["choices"], f"{place}.choices")
        parameter = Parameter(**entries)
        check_words(parameter, place, _refusal)
        if (parameter.type == "choice") != bool(parameter.choices):
            raise _refusal(
                f"{place}.choices",
                list(parameter.choices),
                "choices for type choice, and for no other",
            )
        for limit in (parameter.min, parameter.max):
            if limit is not None:
                typed(limit, float, place, "a number", _refusal)
        for word in (
            *parameter.choices,
            *([] if parameter.default is None else [parameter.default]),
        ):
            parameter.checked(f"{place}.default", word)
        found[name] = parameter
    return found


def _scheduler(value: object, where: str) -> str:
    if value not in SCHEDULERS:
        raise _refusal(
            where,
            value,
            f"one of {', '.join(SCHEDULERS)}; leave it out for trainers on the worker itself",
        )
    return str(value)


def _slurm(value: object, where: str) -> SlurmOptions:
    table = known_keys(value, SlurmOptions, where, _refusal)
    options = _texts(table.get("options", []), f"{where}.options")
    for option in options:
        name = option.removeprefix("--").partition("=")[0]
        if not option.startswith("--") or not name or not option.isprintable():
            raise _refusal(
                f"{where}.options",
                option,
                "options of sbatch in their long form, such as --gpus-per-node=8",
            )
        # sbatch takes the first letters of an option for the whole.
        if ours := next((option for option in _OUR_OPTIONS if option.startswith(name)), None):
            raise _refusal(f"{where}.options", option, f"other options: --{ours} is ours")
    return SlurmOptions(options=options)


def _kubernetes(value: object, where: str) -> KubernetesOptions:
    import yaml  # noqa: PLC0415

    table = known_keys(value, KubernetesOptions, where, _refusal)
    if "manifest" in table:
        raise _refusal(
            f"{where}.manifest",
            table["manifest"],
            "a template: the path of a file of YAML with the Job",
        )
    named = {
        name: typed(text, str, f"{where}.{name}", refuse=_refusal) for name, text in table.items()
    }
    try:
        manifest = yaml.safe_load(Path(named.get("template", "")).read_text(encoding="utf-8"))
        json.dumps(manifest)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise _refusal(
            f"{where}.template",
            named.get("template"),
            f"the path of a file of YAML with a Job ({error})",
        ) from None
    _check_template(manifest, f"{where}.template")
    return KubernetesOptions(**named, manifest=manifest)


def _check_template(manifest: object, where: str) -> None:
    """Refuse a template that is no Job, is more than one pod at a time, or says what is ours."""
    if not isinstance(manifest, dict) or manifest.get("kind") != "Job":
        raise _refusal(where, manifest, "one manifest of kind Job")
    try:
        spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
        container = pod["containers"][0]
        ours = {
            "metadata.name": manifest.get("metadata", {}).get("name"),
            "metadata.generateName": manifest.get("metadata", {}).get("generateName"),
            "spec.suspend": spec.get("suspend"),
            "spec.template.spec.containers[0].command": container.get("command"),
            "spec.template.spec.containers[0].args": container.get("args"),
        }
        several = {name: spec.get(name) for name in ("parallelism", "completions")}
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _refusal(
            where, manifest, f"spec.template.spec.containers with a container in it ({error!r})"
        ) from None
    for name, entry in ours.items():
        if entry is not None:
            raise _refusal(f"{where}, {name}", entry, "nothing: it is ours")
    for name, number in several.items():
        if number not in (None, 1):
            raise _refusal(f"{where}, spec.{name}", number, "1: a run is one pod at a time")


def _limits(value: object, where: str) -> Limits:
    table = known_keys(value, Limits, where, _refusal)
    for name, limit in table.items():
        if typed(limit, float, f"{where}.{name}", "a number above 0", _refusal) <= 0:
            raise _refusal(f"{where}.{name}", limit, "a number above 0")
    return Limits(**table)
