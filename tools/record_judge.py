"""Write tests/data/judge-VERSION.zip, the bundle that shows when the judge changes: the case of
judge 0.1.0, judged by this judge.
"""

from pathlib import Path

from parity.judging.bundles.read_bundle import case_of
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.version import JUDGE_VERSION

DATA = Path(__file__).parents[1] / "tests" / "data"


def main() -> None:
    """Judge the case of the oldest bundle again and store it under this judge's version."""
    case = case_of(str(DATA / "judge-0.1.0.zip"))
    target = DATA / f"judge-{JUDGE_VERSION}.zip"
    target.write_bytes(bundle_bytes(case, case.documents()))
    print(target)


if __name__ == "__main__":
    main()
