"""What commands print fits a terminal: words whole, and a table's row in one line."""

import logging
import re
import shutil
import tomllib
from types import SimpleNamespace

import pytest
import typer

import siloweave as sw
from siloweave.app import comparisons
from siloweave.app.cli import app
from siloweave.app.network import provision
from siloweave.app.status import log_into, time_left_words
from siloweave.app.study import about_method
from siloweave.app.terminal import Terminal
from siloweave.datasets import adult
from siloweave.errors import InputError
from siloweave.methods.registry import METHODS
from siloweave.report.text_table import text_table

WIDTHS = [80, 120]


def words_of(text):
    """The words of a text, without what a paragraph or a sentence puts behind them."""
    return {word.strip(",;:.·()") for word in text.split()} - {""}


def misfits(out, width):
    """Lines that are wider than the terminal, but for a command or a path that is copied whole."""
    long = [line for line in out.splitlines() if len(line) > width]
    return [line for line in long if not re.match(r" *(siloweave |\S+$)", line)]


def check(at_width, width):
    """Check what a function of a width prints; return its text."""
    out = at_width(width)
    assert misfits(out, width) == []
    # At 1,000 characters nothing is wrapped and nothing left out, so that every word is whole.
    assert words_of(out) <= words_of(at_width(1000))
    return out


@pytest.fixture
def at(folder, monkeypatch):
    """What a command prints at a width, on both outputs."""

    def printed(*words, code=0):
        def at_width(width):
            monkeypatch.setenv("COLUMNS", str(width))
            result, out, err = folder.call(*words)
            assert result == code, err
            return out + err

        return at_width

    return printed


@pytest.fixture
def study(folder, finished):
    """The study of `folder` once it was run, with the ends of another beside it."""
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
    )
    provision(folder.path, folder.path / "ends", trial=True)
    shutil.copytree(finished, folder.path / "done")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_commands_wrap_at_words(study, at, width):
    north = "ends/north"
    calls = [
        ("check", "--network", "--rows"),
        ("init", "north.csv", "south.csv", "--folder", "new", "--force"),
        ("run", "done"),
        ("report", "done/run"),
        ("ledger", "done/run"),
        ("ledger", "done/run", "--party", "north"),
        ("list",),
        ("list", "secure_two_round"),
        ("list", "flaim"),
        ("status", "ends/coordinator"),
        ("status", north),
        ("party", "plan", north),
        ("party", "plan", north, "--data", "north.csv"),
        ("party", "account", "--folder", north),
        ("party", "policy", "--folder", north),
        ("party", "key", "small", "--folder", north),
        ("provision", "--keys-made-here", "--out", "others"),
    ]
    for call in calls:
        check(at(*call), width)
    digest = study.json("party", "plan", north)["digest"]
    check(at("party", "approve", north, digest), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_errors_and_warnings_wrap_at_words(study, at, width):
    calls = [
        ("run", "nowhere"),
        ("list", "flame"),
        ("provision", "--out", "others"),
        ("sample", "done/run", "--out", "study.toml"),
        ("ledger", "done/run", "--party", "nobody"),
    ]
    for call in calls:
        check(at(*call, code=2), width)


def test_a_log_wraps_its_warnings_at_words(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    log_into(tmp_path)
    sentence = "party 'north' has answered the study to its end, and may be asked again " * 3
    logging.getLogger("siloweave").warning("%s", sentence)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == sentence.split()
    assert sentence.strip() in (tmp_path / "log.txt").read_text()


def test_a_command_to_be_copied_is_not_broken(study, at):
    deep = study.path / ("a folder with a long name " * 3).strip()
    shutil.copytree(study.path / "done", deep)
    lines = at("run", deep)(80).splitlines()
    for call in (f"siloweave ledger '{deep}/run'", f"siloweave sample '{deep}/run' --out more.csv"):
        assert call in [line.strip() for line in lines]


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_a_method_is_explained_and_written_as_in_a_study(name):
    about = about_method(name)
    assert set(about.meanings) == set(about.settings)
    for setting, value in about.settings.items():
        if value != "not set" and "not set" not in value:
            tomllib.loads(f"{setting} = {value}")


def test_a_method_is_meant_by_its_class_too_however_it_is_written():
    for name, kind in METHODS.items():
        for word in (name, kind.__name__, kind.__name__.lower(), name.replace("_", "-").upper()):
            assert about_method(word).class_name == kind.__name__, word


def test_list_has_a_line_for_each_method_and_all_about_one(study, at):
    methods = study.json("list")
    lines = at("list")(80).splitlines()
    assert len(lines) < len(methods) + 8
    for name, info in methods.items():
        (line,) = [line for line in lines if line.split()[0] == name]
        assert line.split()[1] == info["guarantee"]
    about = study.json("list", "two_round")
    shown = at("list", "two_round")(80)
    assert about["class_name"] == "TwoRound"
    assert "pairs_share" in about["settings"]
    for text in (about["info"]["paper"], about["info"]["statement"], "pairs_share"):
        assert text in " ".join(shown.split())
    code, _, err = study.call("list", "two_rond")
    assert (code, "two_round" in err) == (2, True)


# Score and attack


@pytest.fixture(scope="module")
def tables():
    names = ["age", "sex", "hours-per-week"]
    table = adult().select(names)
    return [table.take(range(start, start + 80)) for start in (0, 80, 160)]


@pytest.fixture(scope="module")
def scores(tables):
    real, synthetic, _ = tables
    return sw.score(real, synthetic, progress=False)


@pytest.fixture(scope="module")
def risks(tables):
    real, synthetic, control = tables
    return sw.attack(real, synthetic, control=control, targets=20, progress=False)


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a function of console or comparisons prints at a width."""

    def at_width(function, *values, **named):
        def printed(width):
            monkeypatch.setenv("COLUMNS", str(width))
            function(*values, **named)
            return capsys.readouterr().out

        return printed

    return at_width


@pytest.mark.parametrize("width", WIDTHS)
def test_each_score_is_a_line_below_its_headings(scores, shown, width):
    out = check(shown(comparisons.print_scores, scores, None, is_wide=False), width)
    (head,) = [line for line in out.splitlines() if line.startswith("measure ")]
    end = head.index("value") + len("value")
    for part in scores.parts:
        start = re.compile(rf"  {re.escape(part.name)}( \[|  )")
        (line,) = [line for line in out.splitlines() if start.match(line)]
        assert re.search(r"[0-9]$", line[:end])  # aligned with the heading's end
        assert line[end : end + 1] in ("", " ")


def test_score_advises_nothing_that_the_command_lacks(scores, shown):
    assert "encoder=" in str(scores)
    out = shown(comparisons.print_scores, scores, None, is_wide=False)(80)
    _, gap, advice = out.partition("not measured: negative log-likelihood")
    assert gap
    assert "=" not in advice.partition("\nrows:")[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_each_attack_is_a_line(risks, shown, width):
    out = check(shown(comparisons.print_risks, risks, None, is_wide=False), width)
    for part in risks.parts:
        start = f"{part.attack.replace('_', ' ')}: {part.variant}"
        lines = [line for line in out.splitlines() if line.startswith(start)]
        numbers = f"{part.risk:.3f}  {part.low:.3f} to {part.high:.3f}"
        assert any(numbers in line for line in lines)


def test_wide_has_all_columns(scores, risks, shown):
    narrow = shown(comparisons.print_scores, scores, None, is_wide=False)(80)
    wide = shown(comparisons.print_scores, scores, None, is_wide=True)(80)
    assert "interval" not in narrow.partition("\n[1]")[0]
    assert "95% interval or spread" in wide
    assert " tries" not in shown(comparisons.print_risks, risks, None, is_wide=False)(80)
    assert " tries" in shown(comparisons.print_risks, risks, None, is_wide=True)(80)


# Layout


def test_a_table_that_does_not_fit_leaves_columns_out_and_then_has_paragraphs(shown):
    heads, rows = ("name", ">count", "path"), [("north", 3, "a" * 30), ("south", 12, "b" * 30)]

    def table(spare=()):
        Terminal().table(text_table(heads, rows, spare=spare))

    assert [line.split() for line in shown(table)(60).splitlines()] == [
        ["name", "count", "path"],
        ["north", "3", "a" * 30],
        ["south", "12", "b" * 30],
    ]
    lines = shown(table, {"path"})(40).splitlines()
    assert lines == ["name   count", "north      3", "south     12"]
    lines = shown(table)(40).splitlines()
    assert lines[0] == "north"
    assert [line.strip() for line in lines[1:3]] == ["count: 3", "path: " + "a" * 30]


def test_an_introduction_keeps_its_command_whole(shown):
    def command():
        Terminal().command("Then:", "siloweave check 'a folder'/study.toml")

    assert shown(command)(80) == "Then: siloweave check 'a folder'/study.toml\n"
    assert shown(command)(20) == "Then:\n  siloweave check 'a folder'/study.toml\n"


def test_what_is_quoted_as_typed_stays_in_one_line(shown):
    def say():
        Terminal().say("See [bold]this[/] first: `siloweave check --rows` compares the files")

    assert shown(say)(30).splitlines() == [
        "See this first:",
        "`siloweave check --rows`",
        "compares the files",
    ]


def test_a_finished_study_has_nothing_left_to_do():
    running = SimpleNamespace(left=None, running=True, parties=())
    assert time_left_words(SimpleNamespace(left=0.0)) == "nothing is left to do"
    assert time_left_words(running) == "time left: not known"
    assert time_left_words(SimpleNamespace(left=None, running=False)) == ""


# A study whose schema is elsewhere


def test_a_trial_takes_a_schema_outside_the_studys_folder(folder):
    inner = folder.path / "inner"
    inner.mkdir()
    for name in ("study.toml", "north.csv", "south.csv"):
        (folder.path / name).rename(inner / name)
    folder.replace("inner/study.toml", '"schema.json"', '"../schema.json"  # shared')
    ends = provision(inner, folder.path / "ends", trial=True)
    for end in ends.values():
        text = (end / "study.toml").read_text()
        assert 'file = "schema.json"  # shared' in text
        assert (end / "schema.json").is_file()
    # Between machines only the folder travels.
    with pytest.raises(InputError, match="Copy the schema beside"):
        provision(inner, folder.path / "others", keys_made_here=True)
    assert not (folder.path / "others").exists()


@pytest.mark.parametrize(
    "text",
    [
        "schema = { file = '../schema.json' }\n",
        'schema.file = "../schema.json"\n',
        '[schema]\n"file" = "../schema.json"\n',
    ],
)
def test_a_path_that_cannot_be_replaced_safely_is_refused(folder, text):
    inner = folder.path / "inner"
    inner.mkdir()
    study = (folder.path / "study.toml").read_text()
    rest = study.replace('[schema]\nfile = "schema.json"\n', "")
    (inner / "study.toml").write_text(text + rest)
    with pytest.raises(InputError, match="Copy the schema beside"):
        provision(inner, folder.path / "ends", trial=True)
    assert not (folder.path / "ends").exists()


# Help


@pytest.mark.parametrize("width", WIDTHS)
def test_help_cuts_no_sentence_and_no_option(at, width):
    assert "..." not in at("--help")(width).partition("Commands:")[2]
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        for words, part in [((name,), command), *below(name, command)]:
            out = at(*words, "--help")(width)
            assert max(map(len, out.splitlines())) <= width
            options = [option for one in part.params if not one.hidden for option in one.opts]
            for option in options:
                assert not option.startswith("--") or option in out.split()


def below(name, group):
    """The commands below a group, each with its words."""
    commands = getattr(group, "commands", {})
    return [((name, word), command) for word, command in commands.items()]
