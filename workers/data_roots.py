"""Which files a job may name: those inside the folders that the worker's operator has declared
(`PARITY_DATA_ROOTS`).

If none is declared, those are the state folder and the checkout's examples: a job must not read
its worker's secrets, such as /proc/self/environ, by naming them as training data.
"""

from collections.abc import Sequence
from pathlib import Path

from server.jobs.registered_roots import lies_in, paths_of
from server.logs import without_secrets
from server.settings import CHECKOUT, Settings
from training.spec import RunSpec

CODE = "PATH_NOT_ALLOWED"


def allowed_roots(settings: Settings) -> Sequence[str]:
    """The folders and URL prefixes that jobs may read on this worker."""
    return settings.data_roots or (str(settings.state_dir.resolve()), str(CHECKOUT / "examples"))


def registered_roots(settings: Settings) -> list[str]:
    """The same as a worker registers them, also where links lead, for workers that cannot look; no
    root keeps a secret.
    """
    return [
        *dict.fromkeys(
            without_secrets(path)
            for root in allowed_roots(settings)
            for path in (root, _resolved(root))
        )
    ]


def refusal(roots: Sequence[str], spec: RunSpec) -> str | None:
    """Why a run may not read the paths in its specification, or None. Links are followed; the
    target of a path counts.
    """
    for field, path in paths_of(spec.document()):
        if not any(lies_in(_resolved(path), _resolved(root)) for root in roots):
            return (
                f"{field} is {path!r:.200}, expected a path inside {' or '.join(roots)}, the "
                "folders that jobs may read on this worker; copy the data there, or add its "
                "folder to the worker's PARITY_DATA_ROOTS"
            )
    return None


def _resolved(path: str) -> str:
    if "://" in path:
        return path
    return str(Path(path).expanduser().resolve())
