"""`progress` means one thing: a bar where someone looks, silence elsewhere, or a function."""

import io
import logging
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import siloweave as sw
from siloweave.app.status import log_into
from siloweave.errors import InputError
from siloweave.progress import Bar, bar_for, shows_progress

ROWS = sw.Table.from_columns({"x": (np.arange(40) % 7, None), "y": (np.arange(40) % 3, None)})
SCHEMA = sw.Schema((
    sw.Column("x", "integer", low=0, high=6), sw.Column("y", "integer", low=0, high=2),
)).with_fallbacks()  # fmt: skip
BUDGET = sw.Budget(4.0, 1e-5)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_has_a_forecast_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Bar() as bar:
        bar("reading", 0.0)
        for stage in ("comparing", "predicting"):
            bar(f"{stage} (about 18.0 s of one core in all)", 0.5)
    assert stream.getvalue().splitlines() == [
        *("reading", "comparing (about 18.0 s of one core in all)", "predicting"),
    ]


CALLS = {
    "AIM": lambda **p: sw.AIM(workload=[("x", "y")]).fit(ROWS, SCHEMA, budget=BUDGET, **p),
    "GaussianCopula": lambda **p: sw.GaussianCopula().fit(ROWS, SCHEMA, **p),
    "SiloFuse": lambda **p: sw.SiloFuse(
        diffusion={"steps": 2, "batch": 8, "hidden": (4,), "timesteps": 3}
    ).fit([ROWS.select(["x"]), ROWS.select(["y"])], SCHEMA, **p),
    "FedTGAN": lambda **p: sw.FedTGAN(
        batch=10, generator=(4,), critic=(4,), rounds=1
    ).fit([ROWS, ROWS], SCHEMA, **p),
    "align_rows": lambda **p: sw.align_rows(
        [sw.Table.from_columns({"i": (np.arange(9), None)})] * 2, ["i"], **p),
    "attack": lambda **p: sw.attack(
        ROWS, ROWS, control=ROWS, allow_overlap=True, attacks=["closest_records"], targets=10, **p),
    "score": lambda **p: sw.score(ROWS.select(["x"]), ROWS.select(["x"]), max_rows=30, **p),
    "shadow_attack": lambda **p: sw.shadow_attack(
        lambda table, key: table, sw.Table.from_columns({"x": (np.arange(60.0) / 2, None)}), [59],
        training_size=20, train_sets=10, test_sets=10, key=0, workers=1,
        attacks=["ClosestDistance-L2"], **p),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_is_shown_in_a_terminal_alone_or_when_asked(name, monkeypatch):
    for stream, wanted, shown in (
        (Terminal(), {}, True),
        (Terminal(), {"progress": False}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"progress": True}, True),
    ):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "stdout", out)
        CALLS[name](**wanted)
        assert bool(stream.getvalue()) == shown, (type(stream), wanted)
        assert not out.getvalue()


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_called_and_nothing_is_shown(name, monkeypatch):
    stream, heard = Terminal(), []
    monkeypatch.setattr(sys, "stderr", stream)
    CALLS[name](progress=lambda text, done: heard.append((text, done)))
    assert heard[-1][1] == 1.0
    assert all(text and 0.0 <= done <= 1.0 for text, done in heard)
    assert not stream.getvalue()


@pytest.mark.parametrize("wrong", ["yes", 0.5, []])
def test_anything_else_is_refused(wrong):
    with pytest.raises(InputError, match="progress="):
        CALLS["GaussianCopula"](progress=wrong)


def test_there_is_no_bar_inside_a_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with bar_for(None) as outer, bar_for(True) as inner:
        assert isinstance(outer, Bar)
        assert not isinstance(inner, Bar)
    with bar_for(None) as again:
        assert isinstance(again, Bar)


def test_a_failed_call_takes_its_bar_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())

    @shows_progress
    def fails(*, progress=None):
        progress("half", 0.5)
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fails()
    with bar_for(None) as bar:
        assert isinstance(bar, Bar)


def test_a_notebook_shows_a_bar_below_its_cell(monkeypatch):
    shown = []
    place = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: place)
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bar_for(None) as bar:
        bar("a < b", 0.25)
    assert shown == ['<progress value="0.2500"></progress> a &lt; b', ""]
    assert not sys.stderr.getvalue()


def on_screen(stream):
    """The lines that were written to a terminal, whatever was drawn over later."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", text)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_bar_is_one_line_whatever_its_text_is(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Bar() as bar:
        bar("measuring [bold]all[/] pairs\nof " + "columns with long names " * 8, 0.5)
    lines = on_screen(stream)
    assert max(map(len, lines)) <= width
    # A name that looks like markup is shown as it is.
    assert any(line.startswith("measuring [bold]") and "50%" in line for line in lines)


def test_a_warning_stands_above_a_bar(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    log = logging.getLogger("siloweave")
    handlers = list(log.handlers)
    # The handler is there before the bar, as at a coordinator.
    log_into(tmp_path)
    try:
        with Bar() as bar:
            bar("planning", 0.3)
            log.warning("party 'north' declines")
            bar("fitting", 0.6)
    finally:
        for handler in set(log.handlers) - set(handlers):
            log.removeHandler(handler)
            handler.close()
    assert "party 'north' declines" in on_screen(stream)
