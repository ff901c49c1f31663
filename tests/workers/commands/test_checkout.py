"""Commits from real repositories: found on listed refs, written byte by byte, and nothing of the
repository runs.
"""

import fcntl
import os
import socket
import threading

import pytest

from workers.commands import checkout
from workers.commands.checkout import CheckoutError
from workers.commands.launchers import read_launchers


@pytest.fixture
def find(write_launchers, tmp_path):
    def find_commit(revision, **changes):
        launcher = read_launchers(write_launchers(**changes))["loop"]
        return launcher, *checkout.find(launcher, revision, tmp_path / "mirrors")

    return find_commit


def test_the_files_below_the_paths_are_written_as_they_are(repository, find, tmp_path):
    script = "#!/bin/sh\r\nexit 0\n"
    (repository.path / "train").mkdir()
    (repository.path / "train" / "link").symlink_to("run.sh")
    repository.commit(
        {
            "train/run.sh": script,
            "README.md": "x",
            ".gitattributes": "* text eol=lf filter=evil ident\n",
        }
    )
    (repository.path / "train" / "run.sh").chmod(0o700)
    commit = repository.commit({"train/id.txt": "$Id$"})
    launcher, mirror, tree = find(commit)
    checkout.write(launcher, mirror, tree, tmp_path)
    assert sorted(file.path for file in tree.files) == [
        "train/id.txt",
        "train/link",
        "train/run.sh",
    ]
    assert (tmp_path / "train/run.sh").read_bytes() == repository.git(
        "show", f"{commit}:train/run.sh"
    ).encode() + b"\n"
    assert (tmp_path / "train/id.txt").read_text() == "$Id$"
    assert os.access(tmp_path / "train/run.sh", os.X_OK)
    assert (tmp_path / "train/link").readlink().name == "run.sh"
    assert checkout.changes(tree, tmp_path) == []
    (tmp_path / "train/id.txt").write_text("other")
    assert checkout.changes(tree, tmp_path) == ["train/id.txt"]


def test_a_commit_of_the_readme_is_the_same_training_and_another_one_is_not(repository, base, find):
    readme = repository.commit({"README.md": "changed"})
    trained = repository.commit({"train/loop.py": "print()"})
    moved = repository.commit({"train/other.py": "print()"})
    digests = [find(commit)[2].digest for commit in (base, readme, trained, moved)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_what_is_not_there_is_told_from_what_cannot_be_reached(repository, base, find, tmp_path):
    assert base
    with pytest.raises(CheckoutError) as missing:
        find("0" * 40)
    assert (missing.value.code, missing.value.transient) == ("REVISION_NOT_FOUND", False)
    with pytest.raises(CheckoutError) as unreachable:
        find("0" * 40, repository=f'"{tmp_path}/nothing"')
    assert (unreachable.value.code, unreachable.value.transient) == ("REPOSITORY_UNREACHABLE", True)
    with pytest.raises(CheckoutError) as empty:
        find(base, paths='["nothing"]')
    assert empty.value.code == "REVISION_NOT_FOUND"


def test_a_repository_that_never_answers_is_given_up(find, monkeypatch):
    monkeypatch.setattr(checkout, "_FETCH_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CheckoutError) as hanging:
        find("0" * 40, repository=f'"git://127.0.0.1:{silent.getsockname()[1]}/model"')
    assert (hanging.value.code, hanging.value.transient) == ("REPOSITORY_UNREACHABLE", True)
    assert "0.5 s" in str(hanging.value)


def test_a_commit_has_to_be_on_a_listed_ref(repository, base, find):
    fork = repository.commit({"train/loop.py": "print('fork')"}, "fork", base)
    repository.git("update-ref", "refs/pull/7/head", fork)
    repository.git("checkout", "--quiet", "main")
    repository.git("branch", "--quiet", "-D", "fork")
    with pytest.raises(CheckoutError) as refused:
        find(fork)
    assert refused.value.code == "REVISION_NOT_FOUND"
    listed = {"refs": '["refs/pull/*"]', "isolated": "true"}
    assert find(fork, **listed)[2].files
    with pytest.raises(CheckoutError):  # the mirror has it now, and its branch still does not
        find(fork)


def test_a_new_commit_is_fetched_and_an_old_one_needs_no_repository(repository, base, find):
    assert find(base)
    later = repository.commit({"train/loop.py": "print(2)"})
    assert find(later)
    repository.path.rename(repository.path.with_name("gone"))
    assert find(base)[2].files == find(base)[2].files


def test_two_slots_that_fetch_at_once_do_not_disturb_each_other(
    repository, base, write_launchers, tmp_path
):
    launcher = read_launchers(write_launchers())["loop"]
    commits = [
        base,
        *(repository.commit({"train/loop.py": f"print({number})"}) for number in range(4)),
    ]
    found, errors = [], []

    def look(commit):
        try:
            found.append(checkout.find(launcher, commit, tmp_path / "mirrors")[1].digest)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=look, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(found)) == len(commits)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "../.."])
def test_a_link_out_of_the_repository_is_refused(repository, base, find, tmp_path, target):
    assert base
    (repository.path / "train" / "link").symlink_to(target)
    commit = repository.commit({"train/more.py": ""})
    launcher, mirror, tree = find(commit)
    with pytest.raises(CheckoutError) as refused:
        checkout.write(launcher, mirror, tree, tmp_path / "out")
    assert refused.value.code == "CHECKOUT_REFUSED"


def test_a_submodule_is_refused_and_not_left_out(repository, base, find):
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{base},train/sub")
    repository.git("commit", "--quiet", "--message", "a submodule")
    with pytest.raises(CheckoutError) as refused:
        find(repository.git("rev-parse", "HEAD"))
    assert refused.value.code == "CHECKOUT_REFUSED"
    assert find(repository.git("rev-parse", "HEAD"), paths='["train/loop.py"]')


def test_no_hook_and_no_configuration_of_anybody_runs(
    repository, base, find, tmp_path, monkeypatch
):
    flag = tmp_path / "ran"
    hook = repository.path / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {flag}\n")
    hook.chmod(0o755)
    (tmp_path / "gitconfig").write_text(
        f'[core]\n\tsshCommand = touch {flag}\n[url "ext::touch {flag}"]\n\tinsteadOf = '
        f"{repository.path}\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.ext::touch {flag}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(repository.path))
    assert find(base)[2].files
    assert not flag.exists()


def test_a_password_in_the_url_is_not_shown(write_launchers):
    launcher = read_launchers(
        write_launchers(repository='"https://user:secret@git.example/team/model.git"')
    )["loop"]
    assert checkout.shown(launcher) == "https://git.example/team/model.git"


def test_a_mirror_that_no_run_used_is_removed_and_one_in_use_is_not(
    repository, base, find, tmp_path
):
    _, mirror, _ = find(base)
    folder, lock = mirror.parent, mirror.with_suffix(".lock")
    assert (checkout.remove_unused(folder, 30.0), mirror.is_dir()) == ([], True)
    os.utime(lock, (1.0, 1.0))
    with lock.open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        assert (checkout.remove_unused(folder, 30.0), mirror.is_dir()) == ([], True)
    find(base)  # which uses it again
    assert checkout.remove_unused(folder, 30.0) == []
    os.utime(lock, (1.0, 1.0))
    assert (checkout.remove_unused(folder, 30.0), mirror.is_dir()) == ([mirror.name], False)
    assert checkout.remove_unused(folder, 30.0) == []
    _, again, _ = find(base)
    assert again == mirror
    assert (mirror / "HEAD").exists()
