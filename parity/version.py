"""Two versions: the package's, and the judge's, which stands in every verdict and in every
bundle.
"""

VERSION = "0.1.0"
"""The package, as in pyproject.toml."""

JUDGE_VERSION = "0.8.0"
"""The judge. Raise it with every change after which the same curves can get another verdict
document. A test compares one recorded bundle, which notices most changes and not all.
"""
