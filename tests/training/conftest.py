"""JAX in its strictest mood: no silent promotion of types or ranks in the trainer."""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

VECTORS = Path(__file__).parent.parent / "data" / "te_vectors.npz"
VARIANTS = VECTORS.with_name("te_variants.npz")


@pytest.fixture(autouse=True, scope="session")
def strict_jax() -> Iterator[None]:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")


@pytest.fixture(scope="session")
def te_variants() -> dict[str, np.ndarray]:
    """Codes and scales of the variants that Transformer Engine has for PyTorch only (tests/data/README.md)."""
    with np.load(VARIANTS) as archive:
        return {key: archive[key] for key in archive.files}


@pytest.fixture(scope="session")
def te_vectors() -> dict[str, np.ndarray]:
    """Codes, scales and products made by Transformer Engine (tests/data/README.md)."""
    with np.load(VECTORS) as archive:
        return {key: archive[key] for key in archive.files}


@pytest.fixture
def gpu_program(monkeypatch) -> Iterator[None]:
    """Programs are traced as for a GPU; those compiled before and during the test are forgotten."""
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield
    jax.clear_caches()
