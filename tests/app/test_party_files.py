"""A party's folder of a study: what others put there is named, and nothing starts beside it."""

import os
import shutil

import pytest

from siloweave.app.account import load_or_create_home
from siloweave.app.network import plan_in, provision, spelled_keys
from siloweave.app.party_files import require_known_files, unknown_files
from siloweave.app.status import known_status
from siloweave.errors import InputError, RosterError
from siloweave.federation.frames import keys_for
from siloweave.federation.site import FolderStore
from tests.app.processes import provisioned, small


@pytest.fixture
def north(folder):
    small(folder)
    return provisioned(folder, "127.0.0.1")["north"]


def test_a_word_of_another_study_is_refused_with_what_to_send(folder):
    home = folder.path / "home"
    identity = load_or_create_home(home)
    small(folder)
    words = {"north": spelled_keys(keys_for("asthma", identity))}
    made = provision(folder.path, folder.path / "ends", words, keys_made_here=True)
    north = home / "small"
    shutil.move(made["north"], north)
    for call in (["plan", north], ["approve", north, "0" * 24]):
        code, _, said = folder.call("party", *call)
        said = " ".join(said.split())
        assert code == 2
        assert "has for another study than 'small'" in said
        assert "siloweave party key small --folder" in said
        assert "--key north=WORD" in said
    assert not (north / "approved.json").exists()


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("raise SystemExit")


def start(folder, end, *words):
    spool = folder.path / "spool"
    return folder.call("party", "start", end, "--spool", spool, "--wait", "1", *words)


def test_nothing_is_open_to_others_whatever_the_umask(folder, monkeypatch):
    small(folder)
    tops = [folder.path / "new", folder.path / "state"]
    monkeypatch.setenv("SILOWEAVE_STATE", str(tops[1] / "mine"))
    earlier = os.umask(0)
    try:
        ends = provision(folder.path, tops[0] / "ends", trial=True)
        FolderStore(ends["north"] / "alignment" / "store")
    finally:
        os.umask(earlier)
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    assert len(paths) > 20
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


def test_a_new_folder_has_nothing_unknown(north):
    assert unknown_files(north) == []


@pytest.mark.parametrize(
    "name",
    [
        *("httpx.py", "sitecustomize.py", "more.pth", "lib.so", "run.sh", "notes.txt"),
        *("flwr/__init__.py", "engine/flwr.py", "engine/home/config.toml", "store/x.pyc"),
    ],
)
def test_a_file_of_others_is_named_and_nothing_starts(name, folder, north):
    digest = plan_in(north).digest
    put(north / name)
    rows = ["--data", folder.path / "north.csv"]
    refusals = [
        start(folder, north, *rows),
        folder.call("party", "plan", north, *rows),
        folder.call("party", "plan", north),
        folder.call("party", "approve", north, digest),
    ]
    for code, out, said in refusals:
        assert (code, out) == (2, "")
        said = " ".join(said.split())
        assert f"has {name.split('/')[0]}" in said
        assert "nothing was started" in said
        assert "move it to another folder" in said
    assert not (north / "log.txt").exists()
    assert not (north / "approved.json").exists()
    assert not (folder.path / "spool").exists()


@pytest.mark.parametrize("name", ["httpx.py", "notes.txt", "engine/home/config.toml", "a/b/x.so"])
def test_status_names_it_in_a_line_also_where_the_facts_were_stored_before(name, folder, north):
    assert "unexpected" not in folder.call("status", north)[1]
    assert known_status(north) is not None  # stored; the next call takes these
    put(north / name)
    _, shown, _ = folder.call("status", north)
    assert f"unexpected in its folder: {name.split('/')[0]}" in shown
    assert "the party does not start beside that" in shown
    (first, *_) = folder.json("status", north)["unexpected"]
    assert first == ("engine/home" if name.startswith("engine") else name)
    (north / name).unlink()
    for place in list((north / name).parents)[: name.count("/")]:
        if place.name != "engine":
            place.rmdir()
    assert folder.json("status", north)["unexpected"] == []


def test_a_yes_says_where_rows_are_that_lie_in_the_folder(folder, north):
    rows = north / "rows.csv"
    rows.write_bytes((folder.path / "north.csv").read_bytes())
    code, _, said = folder.call("party", "plan", north)
    assert code == 2
    assert "rows.csv" in said
    _, shown, _ = folder.call("party", "plan", north, "--data", rows)
    call = " ".join(shown.split()).rpartition("To approve exactly this: siloweave ")[2]
    assert call.endswith(f"--data {rows}")
    assert folder.call(*call.split())[0] == 0
    assert (north / "approved.json").exists()
    assert folder.json("status", north)["unexpected"] == ["rows.csv"]
    assert folder.json("status", north, "--data", rows)["unexpected"] == []


def test_programs_are_named_first_and_many_are_counted(north):
    for number in range(7):
        (north / f"a{number}.txt").touch()
    (north / "z.py").touch()
    with pytest.raises(InputError, match=r"has z\.py, a0\.txt, .* and 3 more, which siloweave"):
        require_known_files(north)


def test_rows_may_lie_there_if_they_are_named(north):
    rows = north / "rows.csv"
    rows.write_text("age\n1\n")
    assert unknown_files(north, rows) == []
    assert [path.name for path in unknown_files(north)] == ["rows.csv"]


def test_what_a_killed_party_was_writing_is_its_own(north):
    for name in ("begun.new", "approved.json.new", ".party.key.7.ab.new", "engine/ca.crt.new"):
        (north / name).touch()
    assert unknown_files(north) == []


@pytest.mark.parametrize("way", ["--keys-made-here", "trial"])
def test_that_the_office_made_keys_is_in_every_partys_plan(way, folder):
    small(folder)
    made = {"keys_made_here": True} if way != "trial" else {"trial": True}
    ends = provision(folder.path, folder.path / "ends", **made)
    for name in ("north", "south"):
        assert plan_in(ends[name]).facts["keys_made_here"] == ["north", "south"]
    _, said, _ = folder.call("party", "plan", ends["north"])
    said = " ".join(said.split())
    assert "the coordinator made the keys of north, south" in said
    assert "take off the masks" in said


def test_keys_are_not_made_at_the_office_unless_someone_says_so(folder):
    small(folder)
    code, _, said = folder.call("provision", "study.toml")
    said = " ".join(said.split())
    assert code == 2
    assert "--key is missing for north, south" in said
    assert "siloweave party key small" in said
    assert "--keys-made-here: whoever has this folder can then sign" in said
    assert not (folder.path / "ends").exists()
    _, word, _ = folder.call("party", "key", "small", "--folder", "home")
    code, _, said = folder.call(
        "provision", "study.toml", "--key", f"north={word.strip()}", "--keys-made-here"
    )
    assert code == 0
    assert "the private keys of south are made here" in " ".join(said.split())
    _, shown, _ = folder.call("party", "plan", "ends/south")
    assert "made the keys of south:" in " ".join(shown.split())


def test_a_node_of_nobody_in_the_study_is_named(folder):
    small(folder)
    with pytest.raises(RosterError, match="--node west: the study has the parties north, south"):
        provision(
            folder.path, folder.path / "ends", trial=True, nodes={"west": folder.path / "w.pub"}
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node-user", "1001", "--spool", "s"], "--node-user 1001 goes with --socket PATH"),
        (["--socket", "s/p", "--node-user", "no one"], "this machine has no such user; give the"),
        (["--socket", "s/p", "--spool", "s"], "say how questions travel"),
        ([], "at a party also --socket PATH"),
    ],
)
def test_a_way_of_questions_that_cannot_be_meant_is_refused(words, said, folder, north):
    code, _, text = folder.call("party", "start", north, "--data", "north.csv", *words)
    assert code == 2
    assert said in " ".join(text.split())
