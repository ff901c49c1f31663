"""The script that a scheduler starts on a node, and the files by which it says what happened.

It is ours, and standard sh: no line of the commit reaches the scheduler. It lies in a folder that
the worker and the nodes share:

    source/         the checkout
    started.N       the job's id, the time of its N-th start (from 0), host and process, before
                    anything else is done. A job that finds the
                    file of another job ends at once, so that a run is never trained twice. An
                    earlier start of its own that the scheduler
                    lost, with the daemon of its node, may still train there: it is ended first
    output.N/       {output} of that start, and stdout.N what it printed, stderr.N where the losses
                    are printed
    without.N/      the launcher started without the commit's files, if that is still to be proven
    ended.N         the trainer's exit status and the time, last of all. A trainer that the
                    scheduler ends by SIGTERM has not ended
"""

import os
import re
import shlex
from pathlib import Path

from parity.frozen import frozen
from training.spec import RunSpec
from workers.commands.follow import LogRefusedError, open_below
from workers.commands.launchers import STDOUT, Launcher
from workers.commands.schedulers import SCRIPT

_PLACES = ("source", "output", "checkpoints")
_PLACE = re.compile("\ue000([a-z]+)\ue001")  # no printable character, so that no argument has it
_MOST_BYTES = 200
_STATUS, _TIME = re.compile(r"[0-9]{1,3}"), re.compile(r"[0-9]{1,12}")
# After SIGTERM `wait` returns before the trainer has ended, so it is repeated. A job that is
# started again after its end has nothing to do.
_TEXT = """#!/bin/sh
umask 022
cd {folder} || exit 70
for each in ended.*; do [ -e "$each" ] && exit 0; done
id=${{SLURM_JOB_ID:-{key}}}
n=0
host=$(uname -n)
rm -f ".started.$id"  # else it is the file of the last start, under another name
printf '%s %s %s %s\\n' "$id" "$(date +%s)" "$host" "$$" > ".started.$id" || exit 70
until ln ".started.$id" "started.$n" 2> /dev/null; do
    [ -e "started.$n" ] || exit 70
    read -r other _ where pid < "started.$n"
    [ "$other" = "$id" ] || exit 71
    left=100
    while [ "$where" = "$host" ] && [ "$pid" != $$ ] && [ "$(readlink "/proc/$pid/cwd")" = {folder} ] && [ $left -gt 0 ]; do
        kill -TERM "$pid" 2> /dev/null
        left=$((left - 1))
        sleep 0.2
    done
    n=$((n + 1))
done
begin() {{
    source=$1 output=$2 checkpoints=$3
    mkdir -p "$source" "$output" "$checkpoints"
{variables}
    cd "$source" || exit 70
    exec {command}
}}
child= stopped=
stop() {{
    stopped=1
    [ -z "$child" ] || kill -TERM "$child" 2> /dev/null
}}
trap stop TERM INT
await() {{
    child=$!
    while :; do
        wait "$child"
        status=$?
        kill -0 "$child" 2> /dev/null || break
    done
    child=
    [ -z "$stopped" ] || exit 143
}}
{negative_control}( begin {folder}/source {folder}/output.$n {checkpoints} ) < /dev/null > "stdout.$n" 2> {errors} &
await
printf '%s %s\\n' "$status" "$(date +%s)" > ".ended.$n" && mv ".ended.$n" "ended.$n"
exit "$status"
"""  # noqa: E501
_NEGATIVE_CONTROL = """mkdir -p "without.$n"
( begin {folder}/without.$n/source {folder}/without.$n/output {folder}/without.$n/checkpoints ) \\
    < /dev/null > "without.$n/stdout" 2> {errors} &
await
"""


def write(
    folder: Path,
    key: str,
    launcher: Launcher,
    spec: RunSpec,
    checkpoints: Path,
    *,
    negative_control: bool,
) -> None:
    """Write the script of a run into its folder. `negative_control`: the launcher is first
    started without the commit's files.
    """
    places = {name: f"\ue000{name}\ue001" for name in _PLACES}
    variables = launcher.variables(spec, places)
    prints = launcher.reports.path == STDOUT
    quoted = shlex.quote(str(folder))
    text = _TEXT.format(
        folder=quoted,
        key=key,
        variables="\n".join(
            f"    export {name}={_quoted(value)}" for name, value in variables.items()
        ),
        command=" ".join(_quoted(argument) for argument in launcher.argv(spec, places)),
        negative_control=_NEGATIVE_CONTROL.format(
            folder=quoted, errors='"without.$n/stderr"' if prints else "&1"
        )
        if negative_control
        else "",
        checkpoints=shlex.quote(str(checkpoints)),
        errors='"stderr.$n"' if prints else "&1",
    )
    path = folder / SCRIPT
    path.write_text(text.replace("2> &1", "2>&1"), encoding="utf-8")
    path.chmod(0o700)


def _quoted(text: str) -> str:
    """A text as one word of sh, with the variables of its places."""
    parts = _PLACE.split(text)
    if len(parts) == 1:
        return shlex.quote(text)
    return "".join(
        f'"${part}"' if number % 2 else part and shlex.quote(part)
        for number, part in enumerate(parts)
    )


@frozen
class StatusFile:
    """A file of the script: its first word and its time (unix seconds, by the node's clock)."""

    word: str
    at: float


def read_start(folder: int, number: int) -> StatusFile | None:
    """The file of a start of the job (`folder`: open); None if it has not been started so often."""
    return _status_file(folder, f"started.{number}")


def read_end(folder: int, number: int) -> StatusFile | None:
    """The exit status of the trainer of a start, a signal as a negative number; None before its
    end.
    """
    end = _status_file(folder, f"ended.{number}")
    if end is None or not _STATUS.fullmatch(end.word):
        return None
    status = int(end.word)
    return StatusFile(word=str(status if status <= 128 else 128 - status), at=end.at)


def _status_file(folder: int, name: str) -> StatusFile | None:
    try:
        opened = open_below(folder, name)
    except (LogRefusedError, OSError):
        return None
    if opened is None:
        return None
    try:
        words = os.pread(opened, _MOST_BYTES, 0).decode(errors="replace")
    except OSError:  # a folder
        return None
    finally:
        os.close(opened)
    parts = words.split()
    if not words.endswith("\n") or len(parts) < 2 or not _TIME.fullmatch(parts[1]):
        return None
    return StatusFile(word=parts[0], at=float(parts[1]))
