"""A generator without a guarantee as a study: what it asks for, prints, writes, and refuses."""

import csv
import json
import math
import subprocess
import sys
from collections import Counter

import pytest

import siloweave as sw
from siloweave.methods.registry import METHODS
from siloweave.privacy.ledger import Ledger
from siloweave.report.record import Record
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Column
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from tests.app.conftest import ran

STUDY = """\
[study]
name = "bare"

[schema]
file = "schema.json"

[method]
name = "gaussian_copula"

[[parties]]
name = "north"
data = "north.csv"
"""
DIFFUSION = """\
name = "tabddpm"
target = "sex"
steps = 3
batch = 16
hidden = [8]
embed = 8
timesteps = 5
"""


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Files of a copula's study that was run; copied, never changed."""
    return ran(tmp_path_factory.mktemp("bare"), STUDY)


@pytest.fixture
def bare(once, copy_of):
    """A folder with that study, finished."""
    return copy_of(once)


@pytest.fixture
def fresh(folder):
    """A folder with that study, not yet run."""
    folder.write("study.toml", STUDY)
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_list_shows_every_method_and_loads_no_network(folder):
    methods = folder.json("list")
    assert set(methods) == set(METHODS)
    assert {info["guarantee"] for info in methods.values()} >= {"dp", "none"}
    code = (
        "import sys; from siloweave.app.cli import main; main(['list']);"
        "slow = {'jax', 'equinox', 'optax', 'scipy', 'opendp', 'dp_accounting', 'sklearn'};"
        "sys.exit(', '.join(sorted(slow & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in methods)


def test_a_forecast_counts_the_rows_that_training_sees():
    seconds = {}
    schema = Schema((Column("x", "continuous", low=0, high=1),)).with_fallbacks()
    for rows in (100, 10_000, 20_000):
        for model in (sw.TabDDPM(), sw.TabDDPM(passes=None), sw.E2E()):
            found = model.forecast(schema, rows=rows)
            free = getattr(model, "passes", 0) is None
            seconds[type(model).__name__, free, rows] = found.seconds
    bound, free, joint = ("TabDDPM", False), ("TabDDPM", True), ("E2E", False)
    assert seconds[*bound, 100] < seconds[*free, 100]
    assert seconds[*bound, 10_000] == seconds[*free, 10_000]
    assert seconds[*joint, 20_000] - seconds[*joint, 10_000] == pytest.approx(
        seconds[*joint, 10_000] - seconds[*joint, 100], rel=0.02
    )


def test_a_forecast_of_an_unknown_training_has_no_time():
    schema = Schema((Column("x", "continuous", low=0, high=1),)).with_fallbacks()
    synth = sw.CTABGAN()
    found = synth.forecast(schema, rows=1_000)
    assert (found.seconds, "no time is printed" in found.notes[-1]) == (None, True)


def test_check_forecasts_what_it_can_and_warns_that_nothing_is_promised(fresh):
    before = fresh.files()
    found = fresh.json("check")
    assert fresh.files() == before
    assert found["epsilon_per_party"] == "inf"
    assert found["domain_cells"] is found["largest_query"] is None
    assert min(found["memory_mb"], found["seconds"], found["bytes_per_party"]) > 0
    assert "epsilon is infinite" in found["warnings"][0]
    code, out, _ = fresh.call("check")
    assert code == 0
    assert "∞: nothing bounds it" in out
    assert "expect a factor of three" in out
    assert "workload" not in out


def test_a_run_writes_all_that_other_runs_write(bare):
    for name in ("synthetic.csv", "report.html", "report-owner.html", "run.json", "record.json"):
        assert (bare.path / "run" / name).is_file()
    before = bare.files()
    summary = bare.json("run")
    assert bare.files() == before
    assert (summary["finished_before"], summary["guarantee"]) == (True, "none")
    assert (summary["private"], summary["epsilon"]) == (False, "inf")
    (party,) = summary["parties"]
    assert (party["name"], party["releases"]) == ("north", 4)
    code, out, _ = bare.call("run")
    assert code == 0
    assert "none was asked for and none is given (ε = ∞)" in out
    assert len(rows_of(bare.path / "run/synthetic.csv")) == 40
    trail = bare.json("ledger", "run")
    assert [entry["event"]["type"] for entry in trail["ledgers"][0]["entries"]] == [
        "non_private"
    ] * 4


def test_the_report_says_in_words_that_nothing_is_protected(bare):
    public = (bare.path / "run/report.html").read_text()
    assert "trained on the rows without noise" in public
    assert "ε = ∞" in public
    assert "no bound was set, and no bound holds" in public
    assert "inf<" not in public
    assert "TVD" not in public
    owner = (bare.path / "run/report-owner.html").read_text()
    assert "TVD" in owner
    assert Record.from_json((bare.path / "run/record.json").read_bytes()).owner is None
    bare.call("report", "run", "-o", "again.html")
    assert (bare.path / "again.html").read_text() == public


def test_rows_are_drawn_as_they_are_asked_for(bare):
    words = ["sample", "run", "-n", 30, "-o"]
    drawn = bare.json(*words, "a.csv")
    seed = drawn.pop("seed")
    assert drawn == {"file": "a.csv", "rows": 30, "private": False}
    bare.call(*words, "b.csv", "--seed", seed)
    assert rows_of(bare.path / "a.csv") == rows_of(bare.path / "b.csv")
    code, _, err = bare.call(*words, "c.csv", "--given", "age=40", "--balanced", "sex")
    assert code == 0, err
    drawn = rows_of(bare.path / "c.csv")
    assert {row["age"] for row in drawn} == {"40"}
    assert Counter(row["sex"] for row in drawn) == {"f": 15, "m": 15}
    for words, said in (
        (["--balanced", "age"], "'age' is no column of classes"),
        (["--balanced", "sxe"], "choose from sex, job"),
        (["--balanced", "sex", "--given", "sex=f"], "leave one out"),
        (["--given", "sex=z"], "It has f, m"),
    ):
        code, _, err = bare.call("sample", "run", "-o", "d.csv", *words)
        assert (code, said in err) == (2, True), err


def test_classes_of_a_graphical_model_are_balanced_too(done):
    code, _, err = done.call(
        "sample", "run", "-n", 21, "-o", "a.csv", "--balanced", "job", "--given", "sex=f"
    )
    assert code == 0, err
    drawn = rows_of(done.path / "a.csv")
    assert {row["sex"] for row in drawn} == {"f"}
    assert sorted(Counter(row["job"] for row in drawn).values()) == [10, 11]


def test_its_table_fits_the_schema_and_so_whatever_reads_two_tables(bare):
    schema = Schema.from_json((bare.path / "schema.json").read_text())
    codes = Encoder(schema, bins=4).encode(read(bare.path / "run/synthetic.csv"))
    assert codes.num_rows == 40
    known = ["--only", "membership", "--targets", 20, "--schema", "schema.json"]
    risks = bare.json("attack", "north.csv", "run/synthetic.csv", "--control", "south.csv", *known)
    assert risks["parts"]


@pytest.mark.parametrize("budget", ["", "epsilon = inf\n", "epsilon = inf\ndelta = 1e-5\n"])
def test_a_budget_is_left_out_or_infinite(fresh, budget):
    table = f"[budget]\n{budget}\n" if budget else ""
    fresh.replace("study.toml", "[method]", f"{table}[method]")
    assert fresh.json("check")["epsilon_per_party"] == "inf"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[method]", "[budget]\nepsilon = 1\ndelta = 1e-6\n[method]", "keeps no bound"),
        ("[method]", "[budget]\nepsilon = 1\n[method]", "[budget] delta is missing"),
        ('"gaussian_copula"', '"aim"', "[budget] is missing: AIM needs epsilon and delta"),
        ('"gaussian_copula"', '"gausian_copula"', "did you mean 'gaussian_copula'?"),
        ('_copula"', '_copula"\nfamily = "t"', "[method] family"),
        ('_copula"', '_copula"\nfamilly = "beta"', "did you mean 'family'?"),
        ('_copula"', '_copula"\ntarget = "sex"', "[method] target is unknown. It takes family"),
        ('"schema.json"', '"schema.json"\nlearn = 0.1', "GaussianCopula learns no schema"),
        ("[method]", "[[parties]]\nname = 'b'\ndata = 'south.csv'\n[method]", "would have to be"),
    ],
)
def test_what_it_does_not_keep_or_take_is_refused(fresh, old, new, said):
    fresh.replace("study.toml", old, new)
    before = fresh.files()
    exit_code = 4 if said == "keeps no bound" else 2
    for command in ("check", "run"):
        code, _, err = fresh.call(command)
        assert (code, said in err) == (exit_code, True), err
    assert fresh.files() == before


def test_methods_that_would_do_are_named(fresh):
    fresh.replace("study.toml", "[method]", "[budget]\nepsilon = 1\ndelta = 1e-6\n[method]")
    _, _, err = fresh.call("check")
    assert "these keep one: aim" in err
    fresh.write("study.toml", STUDY + "[[parties]]\nname = 'b'\ndata = 'south.csv'\n")
    _, _, err = fresh.call("check")
    assert "flaim, distaim, two_round" in err


def test_a_network_is_trained_with_its_settings(fresh):
    fresh.replace("study.toml", 'name = "gaussian_copula"\n', DIFFUSION)
    assert fresh.json("check")["seconds"] > 0
    code, _, err = fresh.call("run")
    assert code == 0, err
    assert {"learning encoders", "encoding rows", "sampling", "report"} <= set(err.splitlines())
    record = json.loads((fresh.path / "run/record.json").read_bytes())
    assert record["settings"]["target"] == "sex"
    assert record["settings"]["hidden"] == [8]
    assert record["epsilon_spent"] == "inf"
    code, _, err = fresh.call("sample", "run", "-n", 9, "-o", "x.csv", "--balanced", "sex")
    assert code == 0, err
    assert len(rows_of(fresh.path / "x.csv")) == 9


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("batch = 16", 'batch = "x"', "[method] batch"),
        ("batch = 16", "batches = 16", "[method] batches"),
        ("steps = 3", "steps = 0", "[method] steps"),
        ('target = "sex"', 'target = "sx"', "[method] target='sx' is no column"),
        ('target = "sex"\n', "\n[method.settings]\n", "is of an older version"),
    ],
)
def test_a_wrong_setting_of_a_network_is_named(fresh, old, new, said):
    fresh.replace("study.toml", 'name = "gaussian_copula"\n', DIFFUSION.replace(old, new))
    before = fresh.files()
    code, _, err = fresh.call("check")
    assert (code, said in err) == (2, True), err
    assert fresh.files() == before


KILLED = """
import os, signal, sys
from siloweave.app.cli import main
from siloweave.models.copula import Copula

Copula.fit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(["run"]))
"""


def test_after_being_killed_in_training_the_same_command_starts_again(fresh):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=fresh.path, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -9
    (file,) = (fresh.path / "run").glob("parties/*/ledger.jsonl")
    counted = Ledger.read(file).entries
    assert [entry.what for entry in counted] == [
        "encoders of every column",
        "weights of GaussianCopula",
    ]
    assert not (fresh.path / "run/run.json").exists()
    assert fresh.json("check")["resumes"] == 2
    summary = fresh.json("run")
    assert summary["finished_before"] is False
    after = Ledger.read(file).entries
    assert after[:2] == counted  # what was counted is counted, once
    assert len(after) == 4
    assert Ledger.read(file).epsilon(1e-6) == math.inf


def test_a_folder_that_gave_everything_away_serves_no_private_run(bare):
    bare.replace("study.toml", "[method]", "[budget]\nepsilon = 1\ndelta = 1e-6\n[method]")
    bare.replace("study.toml", "gaussian_copula", "aim")
    code, _, err = bare.call("run")
    assert code == 4
    assert "has already spent epsilon = inf" in err


STOPPED = """
import os, signal, sys
from siloweave.app.cli import main
from siloweave.models import train

write = train.Keeper.keep

def keep(keeper, step, arrays):
    write(keeper, step, arrays)
    keeper.flush()
    if step >= 2:
        os.kill(os.getpid(), signal.SIGKILL)

train.Keeper.keep = keep
sys.exit(main(["run"]))
"""

PRIVATE = """\
[budget]
epsilon = 3
delta = 1e-6

[method]
name = "dp_tabddpm"
target = "sex"

steps = 2
batch = 16
hidden = [8]
embed = 8
timesteps = 5
"""


@pytest.fixture
def private(folder):
    """A study of a generator that is trained with noise."""
    folder.write("study.toml", STUDY.replace('[method]\nname = "gaussian_copula"\n', PRIVATE))
    return folder


def test_check_of_a_private_generator_promises_what_the_ledger_will_enforce(private):
    found = private.json("check")
    assert (found["epsilon_per_party"], found["guarantee"], found["rounds"]) == (3.0, "dp", 6)
    assert found["warnings"] == []  # its rows are counted, and are enough
    parts = '"dp_tldm"\nscope = "autoencoder"'
    private.replace("study.toml", '"dp_tabddpm"\ntarget = "sex"', parts)
    text = (private.path / "study.toml").read_text()
    head, _, tail = text.partition("steps = 2")
    private.write("study.toml", head + tail[tail.index("[[parties]]") :])
    found = private.json("check")
    assert (found["epsilon_per_party"], found["guarantee"]) == ("inf", "partial")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epsilon = 3\ndelta = 1e-6", "epsilon = inf", "DP-TabDDPM adds noise"),
        ("[budget]\nepsilon = 3\ndelta = 1e-6\n", "", "[budget] is missing: DP-TabDDPM needs"),
        ("epsilon = 3", "epsilon = 1e-4", "Not even a single step is feasible"),
        ("steps = 2", "steps = 2\nclip_range = -1", "[method]"),
        ('target = "sex"', 'target = "sex"\nclip = 0', "[method] clip=0"),
        ('target = "sex"', 'target = "age"', "[method] target='age' is no choice"),
    ],
)
def test_what_a_private_generator_cannot_do_is_refused_before_a_run(private, old, new, said):
    private.replace("study.toml", old, new)
    before = private.files()
    # What a budget cannot pay for has an exit code of its own.
    is_budget = said in ("DP-TabDDPM adds noise", "Not even a single step is feasible")
    exit_code = 4 if is_budget else 2
    for command in ("check", "run"):
        code, _, err = private.call(command)
        assert (code, said in err) == (exit_code, True), err
    assert private.files() == before


@pytest.mark.slow
def test_a_private_generator_runs_as_a_study(private):
    code, _, err = private.call("run")
    assert code == 0, err
    summary = private.json("run")
    assert (summary["private"], summary["guarantee"]) == (True, "dp")
    assert 0 < summary["epsilon"] <= summary["epsilon_allowed"] == 3.0
    page = (private.path / "run/report.html").read_text()
    assert "NOT PRIVATE" not in page
    assert "Gaussian on Poisson samples" in page
    assert "loss" not in err
    code, _, err = private.call("sample", "run", "-n", 8, "-o", "x.csv", "--balanced", "sex")
    assert code == 0, err


@pytest.mark.slow
def test_training_goes_on_from_where_it_was_killed(fresh):
    settings = DIFFUSION.replace("steps = 3", "steps = 6")
    fresh.replace("study.toml", 'name = "gaussian_copula"\n', settings)
    killed = subprocess.run(
        [sys.executable, "-c", STOPPED], cwd=fresh.path, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -9, killed.stderr
    (kept,) = (fresh.path / "run/parties/0000").glob("training-*")
    assert json.loads((kept / "training.json").read_bytes())["step"] in range(2, 6)
    code, _, err = fresh.call("run")
    assert code == 0, err
    assert "step 1 of 6" not in err
    assert not kept.exists()
    fresh.write("study.toml", (fresh.path / "study.toml").read_text() + '[output]\nfolder = "b"\n')
    assert fresh.call("run")[0] == 0
    tables = [(fresh.path / run / "synthetic.csv").read_bytes() for run in ("run", "b")]
    assert tables[0] == tables[1]
