"""The examples and the table of published claims in docs/planning.md: `python -m tools.planning_page` writes them.

A claim is a gap that one run per arm showed. Its interval is the judge's half-width for one run per arm, from `parity.design.chances`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from parity.design.chances import NO_FAMILIES, chances
from parity.design.experiment import BASELINE, CANDIDATE, Design
from parity.judging.floors import ANY_DECODER, public_floors
from parity.judging.lending import Lenders
from parity.judging.policy import Policy, policy_from_mapping
from parity.report.facts import Cells
from parity.report.text import markdown_table
from parity.wording import percent
from tools.public_verdicts import run
from tools.reason_table import rewritten

PAGE = Path(__file__).parents[1] / "docs" / "planning.md"
TABLE = "examples/planning/floors.csv"
PAIR = "parity plan --planned-steps 10000 --baseline-recipe fp8_current --candidate-recipe nvfp4"
SMALL, LARGE = "--step-seconds 5 --devices 8", "--step-seconds 15 --devices 128"
COMMANDS: Mapping[str, str] = {
    "8 B, assumed": f"{PAIR} \\\n  {SMALL}",
    "8 B, reruns that stop early": f"{PAIR} \\\n  {SMALL} --noise-runs 3",
    "8 B, looks and candidates": f"{PAIR} \\\n  {SMALL} --candidates 2 --policy examples/planning/looks.yaml",
    "8 B, own family": f"{PAIR} \\\n  {SMALL} --floors {TABLE} --family my-8B",
    "8 B, narrow margin": f'{PAIR} \\\n  {SMALL} --floors {TABLE} --family my-8B --margin 0.5% --budget "500 hours"',
    "405 B, assumed": f'{PAIR} \\\n  {LARGE} --budget "12000 hours"',
    "405 B, any-decoder": f'{PAIR} \\\n  {LARGE} --budget "12000 hours" --family any-decoder --margin 0.5%',
}
# The others show their answer alone.
WHOLE = ("8 B, reruns that stop early", "8 B, looks and candidates", "8 B, own family", "405 B, assumed")
MARGINS = (0.005, 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A published gap, candidate minus baseline: in nats at a loss, or as a share of it. `at_most` where only a bound is stated."""

    work: str
    scale: str
    recipes: tuple[str, str]
    source: str
    nats: float | None = None
    loss: float | None = None
    share: float | None = None
    at_most: bool = False
    steps: int = 10_000
    of_8b: bool = False

    @property
    def rel(self) -> float | None:
        """The gap as a share of the loss; None where the loss is not stated."""
        if self.share is not None or self.nats is None or self.loss is None:
            return self.share
        return self.nats / self.loss


CLAIMS = (
    Claim(
        work="NVFP4 in MaxText",
        scale="8 B, 10,000 steps",
        recipes=("fp8_current", "nvfp4"),
        nats=0.026,
        loss=3.9,
        of_8b=True,
        source="[NVIDIA's article](https://developer.nvidia.com/blog/train-models-faster-with-jax-and-maxtext-using-nvfp4-on-nvidia-blackwell/)",
    ),
    Claim(
        work="NVFP4 report, stable phase",
        scale="12 B, 10 T tokens",
        recipes=("fp8", "nvfp4"),
        share=0.01,
        at_most=True,
        source="[arXiv 2509.25149](https://arxiv.org/abs/2509.25149)",
    ),
    Claim(
        work="NVFP4 report, decay phase",
        scale="12 B, 10 T tokens",
        recipes=("fp8", "nvfp4"),
        share=0.015,
        source="[arXiv 2509.25149](https://arxiv.org/abs/2509.25149)",
    ),
    Claim(
        work="DeepSeek-V3, FP8",
        scale="16 B and larger, 1 T tokens",
        recipes=("bf16", "fp8"),
        share=0.0025,
        at_most=True,
        source="[arXiv 2412.19437](https://arxiv.org/abs/2412.19437)",
    ),
    Claim(
        work="torchao, NVFP4",
        scale="16 B MoE, 1,500 steps",
        recipes=("bf16", "nvfp4"),
        nats=0.050,
        steps=1500,
        source="[pytorch/ao 4798](https://github.com/pytorch/ao/pull/4798)",
    ),
    Claim(
        work="torchao, MXFP8",
        scale="16 B MoE, 1,500 steps",
        recipes=("bf16", "mxfp8"),
        nats=0.010,
        steps=1500,
        source="[pytorch/ao 4798](https://github.com/pytorch/ao/pull/4798)",
    ),
    Claim(
        work="torchtitan, NVFP4, last layers BF16",
        scale="Llama 3 8B, 200 M tokens",
        recipes=("bf16", "nvfp4"),
        nats=-0.0023,
        loss=1.2738,
        steps=763,
        of_8b=True,
        source="[nvfp4.md](https://github.com/pytorch/torchtitan/blob/main/torchtitan/components/quantization/nvfp4.md)",
    ),
    Claim(
        work="torchtitan, NVFP4, last layers BF16",
        scale="Qwen3 8B, 200 M tokens",
        recipes=("bf16", "nvfp4"),
        nats=0.0155,
        loss=3.8144,
        steps=1526,
        of_8b=True,
        source="[nvfp4.md](https://github.com/pytorch/torchtitan/blob/main/torchtitan/components/quantization/nvfp4.md)",
    ),
    Claim(
        work="ALTO, MXFP4 with rotation and stochastic rounding",
        scale="20 B MoE, 16,128 steps",
        recipes=("bf16", "mxfp4_rht_sr"),
        nats=0.0135,
        loss=3.3283,
        steps=16_128,
        source="[AMD-AGI/ALTO](https://github.com/AMD-AGI/ALTO/blob/main/tech_report/blog.md)",
    ),
    Claim(
        work="ALTO, the same with de-oscillation",
        scale="20 B MoE, 16,128 steps",
        recipes=("bf16", "mxfp4_rht_sr"),
        nats=0.0067,
        loss=3.3283,
        steps=16_128,
        source="[AMD-AGI/ALTO](https://github.com/AMD-AGI/ALTO/blob/main/tech_report/blog.md)",
    ),
    Claim(
        work="UE5M3 report, NVFP4, held out",
        scale="8 B hybrid, 188.7 B tokens",
        recipes=("bf16", "nvfp4"),
        share=0.021,
        of_8b=True,
        source="the report's table",
    ),
)

# Standard deviation over the runs of one arm, as a share of the loss: 20 FP8 and 50 NVFP4 runs of an 8 B model; df of the smaller arm.
RERUNS_8B = policy_from_mapping(
    {"margin": "1%", "baseline_run_floor": "0.175%", "candidate_run_floor": "0.200%", "run_floor_df": 19, "run_floor_evidence": "70 runs"}
)
ASSUMED = policy_from_mapping({"margin": "1%"})


def half_width(claim: Claim, policy: Policy, lenders: Lenders = NO_FAMILIES) -> float:
    """Half the 95 % interval of one run per arm, as a share of the loss."""
    baseline, candidate = claim.recipes
    design = Design(planned_steps=claim.steps, level=1.0, baseline_recipe=baseline, candidate_recipe=candidate)
    return chances(design, policy, lenders).half_width


@functools.cache
def any_decoder() -> Lenders:
    """The floor of finished schedules for both arms."""
    return Lenders(public_floors(), {BASELINE: ANY_DECODER, CANDIDATE: ANY_DECODER})


def answer(claim: Claim, half: float) -> str:
    """What the evidence decides at this half-width: the half-width, whether 0 is excluded, and each margin."""
    gap = claim.rel
    if gap is None:
        most = (claim.nats or 0.0) / half
        return f"{percent(half)}: differs from 0 if the loss is below {most:.1f} nats"
    zero = "differs from 0" if abs(gap) > half else "not told from 0"
    margins = ", ".join(_against(gap, half, margin) for margin in MARGINS)
    return f"{percent(half)}: {'at the bound ' if claim.at_most else ''}{zero}; {margins}"


def _against(gap: float, half: float, margin: float) -> str:
    word = "below" if gap + half < margin else "above" if gap - half > margin else "open at"
    return f"{word} {percent(margin)}"


def claims_table() -> str:
    """One row per claim: the gap as a share of the loss, and the answer under each run floor."""
    rows: list[Cells] = [
        ("claim", "scale", "gap, of the loss", "assumed run noise", "if `any-decoder` holds", "with the noise of the 8 B reruns", "source")
    ]
    for claim in CLAIMS:
        gap = f"{claim.nats:+g} nats, loss not stated" if claim.rel is None else f"{100 * claim.rel:+.2f} %"
        floors = [
            answer(claim, half_width(claim, ASSUMED)),
            answer(claim, half_width(claim, ASSUMED, any_decoder())),
            answer(claim, half_width(claim, RERUNS_8B)) if claim.of_8b else "",
        ]
        rows.append((claim.work, claim.scale, f"at most {gap[1:]}" if claim.at_most else gap, *floors, claim.source))
    return markdown_table(rows)


def example(name: str) -> str:
    """A command of the page and what it prints: all of it, or the first paragraph."""
    printed = run(COMMANDS[name])
    shown = printed.rstrip("\n") if name in WHOLE else printed.partition("\n\n")[0]
    lines = "\n".join(line.rstrip() for line in shown.splitlines())
    return f"```sh\n{COMMANDS[name]}\n```\n\n```\n{lines}\n```"


PARTS: Mapping[str, Callable[[], str]] = {
    **{name: functools.partial(example, name) for name in COMMANDS},
    "claims": claims_table,
}


def written(page: str) -> str:
    """The page with all its parts made again; ValueError if it lacks the marks of one."""
    for name, part in PARTS.items():
        page = rewritten(page, part(), (f"<!-- {name}: written by tools/planning_page.py -->", f"<!-- end of {name} -->"))
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
