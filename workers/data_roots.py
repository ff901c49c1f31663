"""Which files a job may name: those inside the folders that the worker's operator has declared (`PARITY_DATA_ROOTS`).

If none is declared, those are the state folder and the checkout's examples: a job must not read its worker's secrets, such as
/proc/self/environ, by naming them as training data. A name on a hub (`org/name`) is not a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from server.settings import CHECKOUT, Settings
from training.spec import RunSpec

CODE = "PATH_NOT_ALLOWED"
# At most one slash, and no part that begins with a dot, so that the name cannot leave its folder.
_ON_A_HUB = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def in_force(settings: Settings) -> Sequence[str]:
    """The folders and URL prefixes that jobs may read on this worker."""
    return settings.data_roots or (str(settings.state_dir.resolve()), str(CHECKOUT / "examples"))


def refusal(roots: Sequence[str], spec: RunSpec) -> str | None:
    """Why a run may not read the paths in its specification, or None. Links are followed; the target of a path counts."""
    for field, path in _paths(spec):
        if not any(_is_inside(path, root) for root in roots):
            return (
                f"{field} is {path!r:.200}, expected a path inside {' or '.join(roots)}, the folders that jobs may "
                "read on this worker; copy the data there, or add its folder to the worker's PARITY_DATA_ROOTS"
            )
    return None


def _paths(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """The paths that the run reads, by field."""
    options, source = spec.maxtext, spec.data.source
    named = {"data.path": spec.data.path or "", "maxtext.eval_path": options.eval_path, "maxtext.hf_train_files": options.hf_train_files}
    if source == "hf":
        named |= {"maxtext.hf_data_dir": options.hf_data_dir}
    for field, path in named.items():
        if path and not (field in ("data.path", "maxtext.hf_data_dir") and source == "hf" and _ON_A_HUB.fullmatch(path)):
            yield field, path
    if options.tokenizer_path and not _ON_A_HUB.fullmatch(options.tokenizer_path):
        yield "maxtext.tokenizer_path", options.tokenizer_path


def _is_inside(path: str, root: str) -> bool:
    if "://" in path or "://" in root:
        return f"{path}/".startswith(root.rstrip("/") + "/") and ".." not in path.split("/")
    return Path(path).expanduser().resolve().is_relative_to(Path(root).expanduser().resolve())
