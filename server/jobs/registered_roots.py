"""Which files a job may name: those inside the folders that a worker's operator has declared
(`PARITY_DATA_ROOTS`), as it registered them.

The worker itself decides, because it follows links (`workers.data_roots.refusal`). A name on a hub
(`org/name`) is not a path.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from server.database.tables import Job, Worker

# At most one slash, and no part that begins with a dot, so that the name cannot leave its folder.
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def outside_roots(worker: Worker, job: Job) -> str | None:
    """Why a worker may not read a path of a job, or None. It alone knows of relative paths, and
    where it registered no roots.
    """
    roots = worker.device.get("data_roots")
    for field, path in paths_of(job.spec):
        is_whole = "://" in path or path.startswith("/")
        if roots is not None and is_whole and not any(lies_in(path, root) for root in roots):
            return f"{field} {path!r:.200} is outside its PARITY_DATA_ROOTS"
    return None


def paths_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The paths that a job or a run reads, by field, from its document."""
    data, options = spec.get("data") or {}, spec.get("maxtext") or {}
    source = data.get("source")
    named = {"data.path": data.get("path")} | {
        f"maxtext.{name}": options.get(name) for name in ("eval_path", "hf_train_files")
    }
    if source == "hf":
        named["maxtext.hf_data_dir"] = options.get("hf_data_dir")
    for field, path in named.items():
        if path and not (
            field in ("data.path", "maxtext.hf_data_dir")
            and source == "hf"
            and _HUB_NAME.fullmatch(path)
        ):
            yield field, path
    tokenizer = options.get("tokenizer_path")
    if tokenizer and not _HUB_NAME.fullmatch(tokenizer):
        yield "maxtext.tokenizer_path", tokenizer


def lies_in(path: str, root: str) -> bool:
    """Whether a path without links lies in a folder, or a URL below a prefix."""
    if "://" in path or "://" in root:
        return f"{path}/".startswith(root.rstrip("/") + "/") and ".." not in path.split("/")
    return PurePosixPath(posixpath.normpath(path)).is_relative_to(root)
