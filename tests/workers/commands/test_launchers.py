"""The operator's file: read strictly, and one argument an entry whatever a job asks for."""

import pytest

from training.command import Command
from training.later_recipe import LaterRecipe
from training.rules import SpecError
from training.spec import Data, Model, RunSpec, Schedule
from workers.commands.launchers import LauncherError, read_launchers

COMMIT = "a" * 40
PLACES = {"source": "/s", "output": "/o", "checkpoints": "/c"}


def _run(recipe="bf16", environment="", then=None, **parameters):
    return RunSpec(
        recipe=recipe,
        engine="command",
        model=Model(),
        data=Data(),
        schedule=Schedule(steps=300, warmup_steps=10),
        layer_policy="all_linears",
        seed=7,
        replicate=2,
        devices=1,
        command=Command(launcher="loop", parameters=parameters),
        revision=COMMIT,
        environment=environment,
        then=then,
    )


@pytest.fixture
def read(write_launchers):
    return lambda **changes: read_launchers(write_launchers(**changes))["loop"]


def test_an_entry_is_an_argument_and_a_recipe_adds_its_own(read):
    argv = read(
        command='["python", "a {steps} {seed} {replicate} b", "--w={width}", "{recipe}"]'
    ).argv(_run("nvfp4", width=8), PLACES)
    assert argv == ["python", "a 300 7 2 b", "--w=8", "nvfp4", "--recipe=nvfp4"]


def test_a_launcher_of_its_own_digest(read):
    assert read().digest == read().digest != read(pinned='"another"').digest


def test_the_environment_has_nothing_of_the_workers_but_what_finds_programs(read):
    launcher = read(
        environment='{HF_HOME = "{checkpoints}/hf"}',
        environments='{new = {LIBRARY = "2"}}',
        recipes='{bf16 = {environment = {RECIPE = "1"}}}',
    )
    found = launcher.variables(
        _run(environment="new"),
        PLACES,
        {"PATH": "/bin", "PARITY_DATABASE_URL": "secret", "AWS_SECRET": "x"},
    )
    assert {name: found[name] for name in ("PATH", "HF_HOME", "LIBRARY", "RECIPE", "HOME")} == {
        "PATH": "/bin",
        "HF_HOME": "/c/hf",
        "LIBRARY": "2",
        "RECIPE": "1",
        "HOME": "/o",
    }
    assert not [name for name in found if name.startswith(("PARITY", "AWS"))]
    assert "LIBRARY" not in launcher.variables(_run(), PLACES, {})


@pytest.mark.parametrize(
    ("parameters", "kind", "of_the_job"),
    [
        ({"width": 1}, "PARAMETER_REFUSED", "2"),
        ({"width": True}, "PARAMETER_REFUSED", "whole number"),
        ({"width": 3.5}, "PARAMETER_REFUSED", "whole number"),
        ({"width": "8"}, "PARAMETER_REFUSED", "whole number"),
        ({"depth": 3}, "PARAMETER_REFUSED", "depth"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(read, parameters, kind, of_the_job):
    with pytest.raises(LauncherError, match=of_the_job) as refused:
        read().check(_run(**parameters))
    assert refused.value.code == kind


@pytest.mark.parametrize("value", ["--help", "a/../b", "x\ny", "{output}", "x" * 201, "\x1b[2J"])
def test_a_value_that_could_be_more_than_a_value_is_refused_before_a_worker_sees_it(value):
    with pytest.raises(SpecError):
        Command(launcher="loop", parameters={"name": value})


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ("data/v2", True),
        ("v2.1-b", True),
        ("a b", False),
        ("a;b", False),
        ("$HOME", False),
        ("/etc", True),
    ],
)
def test_a_name_has_no_character_of_a_shell(read, value, fits):
    launcher = read(parameters='{width = {type = "name"}}')
    if fits:
        assert launcher.check(_run(width=value)) == {"width": value}
    else:
        with pytest.raises(LauncherError):
            launcher.check(_run(width=value))


def test_choices_and_flags_are_written_as_text(read):
    launcher = read(
        parameters='{width = {type = "choice", choices = ["a", "b"]}, fast = {type = "bool", '
        "default = false}}"
    )
    assert launcher.check(_run(width="b")) == {"width": "b", "fast": "false"}
    for wrong in ("c", 1):
        with pytest.raises(LauncherError):
            launcher.check(_run(width=wrong))
    with pytest.raises(LauncherError, match="no value"):
        launcher.check(_run())


def test_a_recipe_and_an_environment_that_it_has_not_are_refused(read):
    with pytest.raises(LauncherError) as refused:
        read().check(_run("mxfp8"))
    assert refused.value.code == "RECIPE_REFUSED"
    with pytest.raises(LauncherError):
        read().check(_run(environment="new"))


LATER = LaterRecipe(recipe="bf16", from_step=240)


def test_a_later_recipe_is_told_as_the_launcher_says(read):
    launcher = read(then='["--then={then_recipe}", "--from={then_step}", "--gemms={then_gemms}"]')
    told = ["--then=bf16", "--from=240", "--gemms=all"]
    assert launcher.argv(_run("nvfp4", then=LATER), PLACES)[-3:] == told
    assert launcher.argv(_run("nvfp4"), PLACES)[-1] == "--recipe=nvfp4"
    assert (launcher.document()["then"], read().document()["then"]) == (True, False)


def test_a_later_recipe_is_refused_by_a_launcher_that_cannot_tell_it_or_does_not_know_it(read):
    with pytest.raises(LauncherError, match="no `then`") as refused:
        read().check(_run("nvfp4", then=LATER))
    assert refused.value.code == "RECIPE_REFUSED"
    with pytest.raises(LauncherError, match="no recipe mxfp8") as refused:
        read(then='["--then={then_recipe}"]').check(
            _run("nvfp4", then=LaterRecipe(recipe="mxfp8", from_step=240))
        )
    assert refused.value.code == "RECIPE_REFUSED"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"command": '["python", "{then_step}"]'}, "then_step"),
        ({"then": '["{thens}"]'}, "thens"),
        ({"parameters": '{then_step = {type = "int"}}'}, "then_step"),
        ({"comand": "[]"}, "comand"),
        ({"command": '["python", "{stpes}"]'}, "stpes"),
        ({"command": "[]"}, "command"),
        ({"command": '"python train.py"'}, "list"),
        ({"recipes": '{bf16 = ["{nothing}"]}'}, "nothing"),
        ({"recipes": "{}"}, "recipe"),
        ({"recipes": "{nvpf4 = []}"}, "nvfp4"),
        ({"paths": '["../up"]'}, "paths"),
        ({"paths": '["/etc"]'}, "paths"),
        ({"paths": '[":(glob)*"]'}, "paths"),
        ({"reports": '{path = "../log"}'}, "reports"),
        ({"reports": '{path = "/var/log/x"}'}, "reports"),
        ({"reports": '{path = "stdout", layers = "../logs"}'}, "layers"),
        ({"reports": '{path = "stdout", layers = "/var/log"}'}, "layers"),
        ({"reports": '{path = "stdout", pattern = "("}'}, "pattern"),
        ({"reports": '{path = "stdout", pattern = "loss (?P<loss>.*)"}'}, "step"),
        ({"parameters": '{seed = {type = "int"}}'}, "seed"),
        ({"parameters": '{width = {type = "path"}}'}, "type"),
        ({"parameters": '{width = {type = "choice"}}'}, "choices"),
        ({"parameters": '{width = {type = "int", default = 1, min = 2}}'}, "default"),
        ({"limits": "{seconds = 0}"}, "limits"),
        ({"limits": "{steps = 1}"}, "limits"),
        ({"repository": '"ext::sh -c id"'}, "repository"),
        ({"repository": '"--upload-pack=id"'}, "repository"),
        ({"environment": '{"A B" = "1"}'}, "environment"),
        ({"name": '"x"'}, "name"),
        ({"refs": '["refs/pull/*"]'}, "isolated"),
        ({"refs": '["refs/*"]'}, "isolated"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(write_launchers, changes, named):
    path = write_launchers(**changes)
    with pytest.raises(LauncherError, match=named) as refused:
        read_launchers(path)
    assert str(refused.value).startswith(str(path))


def test_refs_of_anybody_need_another_user_or_a_container(read):
    assert read(refs='["refs/pull/*"]', isolated="true").refs == ("refs/pull/*",)


def test_a_file_that_is_none(tmp_path):
    for text in ("", "[launcher", "x = 1"):
        (tmp_path / "l.toml").write_text(text)
        with pytest.raises(LauncherError, match=r"l\.toml"):
            read_launchers(tmp_path / "l.toml")
    with pytest.raises(LauncherError):
        read_launchers(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scheduler": '"cron"'}, "scheduler is 'cron'"),
        ({"scheduler": '"slurm"', "device_class": '""'}, "device_class"),
        ({"scheduler": '"slurm"', "user": '"nobody"'}, "user is 'nobody'"),
        ({"slurm": '{options = ["--mem=1"]}'}, "scheduler is ''"),
        ({"scheduler": '"kubernetes"'}, "kubernetes.template"),
        (
            {"scheduler": '"kubernetes"', "kubernetes": '{template = "/nowhere.yaml"}'},
            "/nowhere.yaml",
        ),
        ({"scheduler": '"kubernetes"', "kubernetes": "{manifest = {}}"}, "kubernetes.manifest"),
        *(
            ({"scheduler": '"slurm"', "slurm": f'{{options = ["{option}"]}}'}, option)
            for option in (
                "-p",
                "low",
                "--array=1-5",
                "--arr=1-5",
                "--export=ALL",
                "--job-name=x",
                "--hold",
                "--output=/x",
                "--o",
                "--",
            )
        ),
    ],
)
def test_what_a_scheduler_cannot_be_told_is_named(read, changes, named):
    with pytest.raises(LauncherError) as refused:
        read(**({"device_class": '"8 x H100"'} | changes))
    assert named in str(refused.value)


def test_a_scheduler_is_a_part_of_the_launcher_and_the_server_knows_its_name(read):
    local = read(device_class='"8 x H100"')
    on_slurm = read(
        device_class='"8 x H100"',
        scheduler='"slurm"',
        slurm='{options = ["--gpus-per-node=8", "--requeue"]}',
    )
    assert "scheduler" not in local.document()
    assert on_slurm.document()["scheduler"] == "slurm"
    assert on_slurm.submits_with == {"options": ("--gpus-per-node=8", "--requeue")}
    assert on_slurm.digest != local.digest
