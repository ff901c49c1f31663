"""Results of lm-evaluation-harness in the shape of its own files: counts, items, groups, and what
can't be counted.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from parity.cli import main
from parity.judging.secondary.tasks import compare_tasks
from parity.readers.errors import ReadError
from parity.readers.secondary.accuracy import read_accuracy

STAMP = "2026-11-20T10-11-12.123456"


def results() -> dict[str, Any]:
    """What 0.4.x writes for --tasks arc_easy,gsm8k,mmlu,wikitext, some of its many keys."""
    subjects = {"mmlu_anatomy": (135, 81), "mmlu_virology": (166, 83)}
    return {
        "results": {
            "arc_easy": {
                "alias": "arc_easy",
                "acc,none": 0.76,
                "acc_stderr,none": 0.0095,
                "acc_norm,none": 0.74,
                "acc_norm_stderr,none": 0.0097,
            },
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 0.25,
                "exact_match_stderr,strict-match": 0.05,
                "exact_match,flexible-extract": 0.5,
                "exact_match_stderr,flexible-extract": 0.05,
            },
            "mmlu": {"acc,none": 164 / 301, "acc_stderr,none": 0.028, "alias": "mmlu"},
            "mmlu_stem": {"acc,none": 164 / 301, "acc_stderr,none": 0.028, "alias": " - stem"},
            **{
                task: {"alias": f"  - {task}", "acc,none": right / n, "acc_stderr,none": "N/A"}
                for task, (n, right) in subjects.items()
            },
            "truthfulqa_mc2": {
                "alias": "truthfulqa_mc2",
                "acc,none": 0.4311237,
                "acc_stderr,none": 0.014,
            },
            "wikitext": {
                "alias": "wikitext",
                "word_perplexity,none": 12.1,
                "bits_per_byte,none": 0.61,
            },
        },
        "groups": {"mmlu": {"acc,none": 164 / 301, "alias": "mmlu"}},
        "group_subtasks": {
            "arc_easy": [],
            "gsm8k": [],
            "mmlu": ["mmlu_stem"],
            "mmlu_stem": list(subjects),
        },
        "configs": {"gsm8k": {"task": "gsm8k", "num_fewshot": 5}},
        "versions": {"arc_easy": 1.0, "gsm8k": 3.0, "mmlu": 2},
        "n-shot": {"arc_easy": 0, "gsm8k": 5, "mmlu_anatomy": 5, "mmlu_virology": 5, "wikitext": 0},
        "higher_is_better": {"arc_easy": {"acc": True, "acc_norm": True}},
        "n-samples": {
            "arc_easy": {"original": 2376, "effective": 100},
            "gsm8k": {"original": 1319, "effective": 4},
            "truthfulqa_mc2": {"original": 817, "effective": 817},
            "wikitext": {"original": 62, "effective": 62},
            **{task: {"original": n, "effective": n} for task, (n, _) in subjects.items()},
        },
        "config": {"model": "hf", "model_args": "pretrained=out", "limit": None, "random_seed": 0},
        "git_hash": "034ab03",
        "date": 1790000000.5,
        "lm_eval_version": "0.4.9",
        "model_source": "hf",
        "total_evaluation_time_seconds": "812.4",
    }


def sample(doc: int, part: str, right: float, prompt: str = "p") -> dict[str, Any]:
    return {
        "doc_id": doc,
        "doc": {"question": f"Q{doc}", "answer": "#### 4"},
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": "Question: ...", "arg_1": {"until": ["Question:"]}}},
        "resps": [["4"]],
        "filtered_resps": ["4"],
        "filter": part,
        "metrics": ["exact_match"],
        "doc_hash": f"{doc:064x}",
        "prompt_hash": f"{prompt}{doc}",
        "target_hash": "t",
        "exact_match": right,
    }


def written(folder: Path, document: object, gsm8k: list[dict[str, Any]] | None = None) -> str:
    folder.mkdir(exist_ok=True)
    if gsm8k is not None:
        (folder / f"samples_gsm8k_{STAMP}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in gsm8k)
        )
    path = folder / f"results_{STAMP}.json"
    path.write_text(json.dumps(document, indent=2))
    return str(path)


GSM8K = [
    sample(doc, part, right)
    for doc in range(4)
    for part, right in (("strict-match", float(doc == 2)), ("flexible-extract", doc % 2))
]


def test_counts_groups_and_what_is_left_out(tmp_path: Path) -> None:
    accuracy = read_accuracy(written(tmp_path, results()))
    assert {task: (result.correct, result.items) for task, result in accuracy.items()} == {
        "arc_easy acc_norm, 0 shots": (74, 100),
        "gsm8k exact_match,strict-match, 5 shots": (1, 4),
        "mmlu acc, 5 shots": (164, 301),
    }
    assert not any(result.by_item for result in accuracy.values())


def test_samples_beside_the_file_pair_the_items(tmp_path: Path) -> None:
    base = read_accuracy(written(tmp_path / "a", results(), GSM8K))
    task = "gsm8k exact_match,strict-match, 5 shots"
    assert list(base[task].by_item.values()) == [False, False, True, False]
    cand = read_accuracy(
        written(
            tmp_path / "b",
            results(),
            [sample(doc, "strict-match", float(doc == 0)) for doc in (3, 2, 1, 0)],
        )
    )
    gaps = {gap["task"]: gap for gap in compare_tasks(base, cand, 1.0, 0.95)}
    assert (gaps[task]["paired"], gaps[task]["items"], gaps[task]["gap_points"]) == (True, 4, 0)
    assert not gaps["mmlu acc, 5 shots"]["paired"]
    other_prompt = [sample(doc, "strict-match", float(doc == 0), prompt="q") for doc in range(4)]
    with pytest.raises(ValueError, match="in one file only; expected the same items in both"):
        compare_tasks(
            base, read_accuracy(written(tmp_path / "c", results(), other_prompt)), 1.0, 0.95
        )
    inline = results() | {"samples": {"gsm8k": GSM8K}}
    assert read_accuracy(written(tmp_path / "d", inline))[task] == base[task]


def test_a_group_of_unlike_tasks_is_not_pooled(tmp_path: Path) -> None:
    document = results()
    document["group_subtasks"] = {
        "mine": ["arc_easy", "gsm8k", "mmlu"],
        "mmlu": ["mmlu_anatomy", "mmlu_virology"],
    }
    document["results"]["mine"] = {"alias": "mine"}
    del document["results"]["mmlu_stem"]
    assert sorted(task.split()[0] for task in read_accuracy(written(tmp_path, document))) == [
        "arc_easy",
        "gsm8k",
        "mmlu",
    ]


@pytest.mark.parametrize(
    ("change", "samples", "message"),
    [
        (
            {"results": {"wikitext": {"word_perplexity,none": 12.1}}},
            None,
            "no task with exact_match, acc_norm",
        ),
        ({"n-samples": {}}, None, "task arc_easy: no n-samples and no samples file"),
        (
            {"n-samples": {"arc_easy": {"original": 100}}},
            None,
            "expected the number of items under `effective`",
        ),
        ({}, [*GSM8K, GSM8K[0]], "is there twice; expected each item once"),
        ({}, GSM8K[:4], "exact_match,strict-match is 0.25, and its samples have 0 right of 2"),
        ({}, [sample(0, "other", 1.0)], "no sample with filter 'strict-match'"),
        (
            {},
            [sample(0, "strict-match", 1.0) | {"exact_match": None}],
            "exact_match is None; expected 0 or 1",
        ),
        ({}, [{"doc": {}}], "expected an object with a doc_id"),
    ],
)
def test_bad_files_are_one_line(
    change: dict[str, Any], samples: list[dict[str, Any]] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ReadError) as error:
        read_accuracy(written(tmp_path, results() | change, samples))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_broken_samples_file_names_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, results(), GSM8K)
    (tmp_path / f"samples_gsm8k_{STAMP}.jsonl").write_text(json.dumps(GSM8K[0]) + "\n{broken\n")
    with pytest.raises(ReadError, match=r"samples_gsm8k_2026.*jsonl, line 2: not valid JSON"):
        read_accuracy(path)


def test_compare_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "step,loss\n" + "".join(
        f"{step},{3 + 0.1 * (step * 7919 % 13)}\n" for step in range(400)
    )
    arms = []
    for name in ("fp8", "nvfp4"):
        (tmp_path / f"{name}.csv").write_text(rows)
        arms += ["--evaluation", f"{name}={written(tmp_path / name, results(), GSM8K)}"]
    with pytest.raises(SystemExit):
        main(
            [
                "compare",
                str(tmp_path / "fp8.csv"),
                str(tmp_path / "nvfp4.csv"),
                "--planned-steps",
                "400",
                "--json",
                *arms,
            ]
        )
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert [gap["task"] for gap in verdict["downstream"]] == [
        "arc_easy acc_norm, 0 shots",
        "gsm8k exact_match,strict-match, 5 shots",
        "mmlu acc, 5 shots",
    ]
