"""What a job may read of a worker's machine."""

import pytest

from server.settings import CHECKOUT
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data
from workers import data_roots


@pytest.fixture
def spec(make_job):
    """A function that gives the first run of a job with these paths."""

    def make(path, source="text", **options):
        changes = {"data": Data(source=source, path=path, sequence_length=32, batch_size=2)}
        if source in ("grain", "hf", "tfds"):
            changes |= {
                "engine": "maxtext",
                "layer_policy": "all_linears",
                "maxtext": MaxTextOptions(**options),
            }
            # fits the sizes of a small model
            changes |= {"candidates": (ArmSpec(recipe="fp8_delayed"),)}
        return next(iter(make_job(**changes).runs()))[1]

    return make


@pytest.fixture
def folder(tmp_path):
    """A declared root with a file in it, a link inside it, and a link that leads out."""
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "corpus").write_text("text")
    (tmp_path / "secret").write_text("key")
    (tmp_path / "data" / "inside").symlink_to(tmp_path / "data" / "deep")
    (tmp_path / "data" / "out").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    ["data", "data/deep/corpus", "data/../data/deep", "data/inside/corpus", "data/not-there-yet"],
)
def test_a_path_inside_a_root_may_be_read(folder, spec, path):
    assert data_roots.refusal([str(folder / "data")], spec(str(folder / path))) is None
    assert (
        data_roots.refusal(["/elsewhere", str(folder / "data")], spec(str(folder / path))) is None
    )


@pytest.mark.parametrize(
    "path",
    ["secret", "data/../secret", "data/out/secret", "data-too", "", "data/deep/../../secret"],
)
def test_a_path_that_leads_out_is_refused_by_name(folder, spec, path):
    path_text = str(folder / path)
    refused = data_roots.refusal([str(folder / "data")], spec(path_text))
    assert f"data.path is {path_text!r}" in refused
    assert f"inside {folder / 'data'}" in refused


@pytest.mark.parametrize(
    ("path", "source", "options", "field"),
    [
        ("/data/a*", "grain", {}, None),
        ("/data/*/../../etc/passwd", "grain", {}, "data.path"),
        ("/data/a", "grain", {"eval_path": "/etc/passwd"}, "maxtext.eval_path"),
        ("/data/a", "grain", {"tokenizer_path": "/root/.cache/t"}, "maxtext.tokenizer_path"),
        ("/data/a", "grain", {"tokenizer_path": "meta-llama/Llama-3.1-8B"}, None),
        ("gs://corpus/c4", "tfds", {}, None),
        ("gs://corpus-of-others/c4", "tfds", {}, "data.path"),
        ("gs://corpus/../others", "tfds", {}, "data.path"),
        ("file:///etc/passwd", "tfds", {}, "data.path"),
        ("allenai/c4", "hf", {"hf_data_dir": "en"}, None),
        ("json", "hf", {"hf_train_files": "/etc/passwd"}, "maxtext.hf_train_files"),
        ("../secrets", "hf", {}, "data.path"),
        ("json", "hf", {"hf_data_dir": "/etc"}, "maxtext.hf_data_dir"),
    ],
)
def test_everything_that_maxtext_reads_is_looked_at(spec, path, source, options, field):
    refused = data_roots.refusal(["/data", "gs://corpus"], spec(path, source, **options))
    assert (refused or "").partition(" is ")[0] == (field or "")


def test_what_comes_with_the_worker_needs_no_root(make_job):
    run = next(iter(make_job().runs()))[1]
    assert data_roots.refusal(["/data"], run) is None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/etc/shadow", False),
        ("/proc/self/environ", False),
        ("state/corpus", True),
        ("curves", True),
    ],
)
def test_without_declared_roots_a_job_reads_the_state_folder_and_the_examples(
    settings, spec, path, allowed
):
    places = {
        "state/corpus": str(settings.state_dir / "corpus"),
        "curves": str(CHECKOUT / "examples" / "curves"),
    }
    refused = data_roots.refusal(data_roots.allowed_roots(settings), spec(places.get(path, path)))
    assert (refused is None) == allowed


def test_a_worker_registers_its_roots_with_their_targets_and_without_secrets(settings, folder):
    roots = (
        str(folder / "data" / "inside"),
        "s3://reader:hunter2hunter2@bucket/corpus",
        "gs://corpus",
    )
    registered = data_roots.registered_roots(settings.model_copy(update={"data_roots": roots}))
    assert registered[:2] == [roots[0], str(folder / "data" / "deep")]
    assert registered[-1] == "gs://corpus"
    assert "hunter2" not in str(registered)


def test_declared_roots_replace_those(settings, spec):
    every = settings.model_copy(update={"data_roots": ("/",)})
    assert data_roots.refusal(data_roots.allowed_roots(every), spec("/etc/shadow")) is None
