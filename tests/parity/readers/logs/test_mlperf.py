"""MLPerf logs: alone, between other lines, and as a folder of results that is a table of runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.readers import ReadError, SeveralRunsError, read_run, read_runs, read_with_config
from parity.readers.logs.mlperf import rows_of_folder
from parity.readers.run_tables.layout import RunTable
from parity.readers.run_tables.proposed_options import proposed_options
from parity.readers.run_tables.run_table import read_run_table

FACTS = {
    "submission_benchmark": "llama31_8b",
    "submission_org": "Somebody",
    "submission_platform": "8xB200",
    "seed": 11993,
    "global_batch_size": 32,
    "opt_base_learning_rate": 0.001,
    "max_steps": 1_200_000,
    "target_accuracy": 3.3,
}


def event(key, value, **about):
    """An event as mllog writes it."""
    document = {
        "namespace": "",
        "time_ms": 1759966707313,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
    }
    return (
        ":::MLLOG "
        f"{json.dumps({**document, 'metadata': {'file': '/workspace/callbacks.py', 'lineno': 341, **about}})}"  # noqa: E501
    )


def log(
    *, losses=(5.652895927429199, 4.426892280578613, 4.063647747039795), training=False, **facts
):
    """The lines of a run, with its evaluations every 12,288 samples."""
    lines = [event(key, value) for key, value in (FACTS | facts).items() if value is not None]
    for number, loss in enumerate(losses, 1):
        if training:
            stats = {"train_step_time": 0.14278, "reduced_train_loss": loss + 0.25}
            lines.append(
                event(
                    "tracked_stats",
                    stats,
                    step=63.0,
                    samples_count=12288.0 * number - 640,
                    lr=0.001 / number,
                )
            )
        lines.append(event("tracked_stats", {"throughput": 24.59}, step=12288 * number))
        lines.append(
            event(
                "eval_accuracy", loss, epoch_num=12288 * number - 32, samples_count=12288 * number
            )
        )
        lines.append(
            event("tracked_stats", {"validation_step_time": 0.04}, step=3, samples_count=144)
        )
    return [*lines, event("run_stop", None, status="success", samples_count=36864)]


@pytest.fixture
def write(tmp_path):
    """A function that writes lines to a file of the folder and names it."""

    def written(name, lines):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return written


EVALUATED = {"loss": "eval_loss"}


def test_evaluations_are_read_to_the_last_digit(write):
    curve, facts = read_with_config(write("result_0.txt", log()), columns=EVALUATED)
    np.testing.assert_array_equal(curve.steps, [12288, 24576, 36864])
    np.testing.assert_array_equal(
        curve.loss, [5.652895927429199, 4.426892280578613, 4.063647747039795]
    )
    assert (curve.seed, curve.seed_stated) == (11993, True)
    assert facts.context == {"learning_rate": "0.001", "batch_size": "32"}
    assert "an MLPerf log: steps are consumed samples" in curve.notes


def test_a_precision_is_shown_and_never_a_recipe(write):
    curve = read_run(
        write("result_0.txt", log(lowest_numerical_precision_linear="nvfp4")), columns=EVALUATED
    )
    assert curve.recipe is None
    assert any("precision 'nvfp4'" in note for note in curve.notes)


def test_training_losses_count_first_and_evaluations_go_with_them(write):
    curve = read_run(write("result_0.txt", log(training=True)))
    np.testing.assert_array_equal(curve.steps, [11648, 23936, 36224])
    np.testing.assert_allclose(
        curve.loss, np.array([5.652895927429199, 4.426892280578613, 4.063647747039795]) + 0.25
    )
    np.testing.assert_array_equal(
        curve.columns["validation_loss"], [5.652895927429199, 4.426892280578613, 4.063647747039795]
    )
    np.testing.assert_array_equal(curve.columns["learning_rate"], [0.001, 0.0005, 0.001 / 3])


def test_other_lines_ranks_and_a_cut_end_are_left_out(write):
    expected = read_run(write("plain.txt", log()), columns=EVALUATED)
    lines = [
        "step 3 loss 9.5",
        *(f"0: {line}" for line in log()),
        "Epoch 1: 100 % loss: 9.1",
        *(f"1: {line}" for line in log()),
    ]
    path = Path(write("mixed.txt", lines))
    path.write_text(path.read_text() + ':::MLLOG {"key": "eval_accur')
    curve = read_run(str(path), columns=EVALUATED)
    np.testing.assert_array_equal(curve.loss, expected.loss)


def test_evaluations_alone_are_not_taken_for_training(write):
    with pytest.raises(
        ReadError, match=r"evaluations and no training losses.*--column loss=eval_loss"
    ):
        read_run(write("result_0.txt", log()))


def test_what_the_trainer_prints_is_read_where_the_events_have_no_training_loss(write):
    lines = [
        f"completed step: {step}, seconds: 0.05, loss: {4 - step / 10:.3f}, perplexity: 9"
        for step in range(5)
    ]
    assert read_run(write("result_0.txt", [*log()[:-1], *lines])).loss.tolist() == [
        4.0,
        3.9,
        3.8,
        3.7,
        3.6,
    ]


def test_an_accuracy_of_another_benchmark_is_no_loss(write):
    path = write("result_0.txt", log(submission_benchmark="bert", losses=(0.6, 0.7, 0.72)))
    with pytest.raises(ReadError, match="no loss column"):
        read_run(path)
    with pytest.raises(ReadError, match="named as an accuracy"):
        read_run(path, columns={"loss": "eval_accuracy"})


def test_a_diverged_evaluation_is_kept(write):
    curve = read_run(write("result_0.txt", log(losses=(5.5, float("nan")))), columns=EVALUATED)
    np.testing.assert_array_equal(curve.loss, [5.5, np.nan])


def test_a_broken_event_names_its_line(write):
    lines = log()
    lines[3] = ":::MLLOG {broken"
    with pytest.raises(ReadError, match="line 4: an MLPerf event that is not valid JSON"):
        read_run(write("result_0.txt", lines), columns=EVALUATED)


@pytest.fixture
def results(write, tmp_path):
    """A folder of two arms with three results each."""
    for arm, gap in (("fp8", 0.0), ("nvfp4", 0.03)):
        for number in range(3):
            losses = [5.65 + gap, 4.43 + gap + number / 1000, 4.06 + gap - number / 500]
            write(
                f"{arm}/result_{number}.txt",
                log(
                    losses=losses,
                    training=number == 0,
                    seed=number,
                    submission_platform=f"{arm}-machine",
                ),
            )
    (tmp_path / "fp8" / "notes.txt").write_text("no log")
    return tmp_path


def test_a_folder_of_results_is_a_table_of_runs(results):
    arms = read_run_table(
        str(results),
        RunTable(arm="folder", run=("run",), step="samples", loss="eval_loss", seed="seed"),
    )
    assert {name: [(run.label, run.seed) for run in runs] for name, runs in arms.items()} == {
        arm: [(f"{arm}/result_{number}", number) for number in range(3)] for arm in ("fp8", "nvfp4")
    }
    assert arms["nvfp4"][2].loss.tolist() == [
        5.65 + 0.03,
        4.43 + 0.03 + 2 / 1000,
        4.06 + 0.03 - 2 / 500,
    ]
    assert arms["fp8"][0].context["system"] == "fp8-machine"


def test_a_folder_proposes_its_own_options(results):
    assert (
        " ".join(proposed_options(str(results)))
        == "--arm-by folder --run-by run --baseline fp8 --step samples --loss eval_loss"
    )
    for path in results.glob("nvfp4/*"):
        path.write_text(
            path.read_text() + event("lowest_numerical_precision_linear", "nvfp4") + "\n"
        )
    assert {row.get("precision") for row in rows_of_folder(results)} == {None, "nvfp4"}
    assert proposed_options(str(results))[1] == "folder"  # only one arm states its precision
    for path in results.glob("fp8/result*"):
        path.write_text(path.read_text() + event("lowest_numerical_precision_linear", "fp8") + "\n")
    assert proposed_options(str(results))[:2] == ["--arm-by", "precision"]


def test_a_folder_as_one_run_lists_its_logs(results):
    with pytest.raises(SeveralRunsError, match="a folder of 3 MLPerf logs"):
        read_run(str(results / "fp8"), columns=EVALUATED)
    assert len(read_runs(str(results / "fp8"), columns=EVALUATED)) == 3
