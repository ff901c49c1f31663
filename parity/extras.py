"""What each extra of the package installs, and how an error says so where it is missing.

The packages are named, not `parity[EXTRA]`: a clone or a wheel needs no index that has `parity`.
"""

PACKAGES = {
    "figures": ("matplotlib",),
    "mlflow": ("alembic", "mlflow-skinny", "sqlalchemy"),
    "readers": ("pyarrow",),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""The packages of each extra in pyproject.toml."""


def installation(extra: str) -> str:
    """What to type where an extra is missing, and its name."""
    return f'pip install {" ".join(PACKAGES[extra])} (the extra "{extra}")'
