"""What every method sends, pays, draws and saves is what it was; golden.py says how to renew it."""

import json

import pytest

from tests.synthesizers.golden import CASES, FILE, arithmetic, golden
from tests.synthesizers.networked import in_frames
from tests.synthesizers.processes import in_processes

KEPT = json.loads(FILE.read_text())
_QUICK = (
    "aim",
    "privmrf",
    "flaim",
    "distaim",
    "two_round",
    "secure",
    "gaussian_copula",
    "silofuse with noise",
)


PLAIN_OPENERS = {"processes": in_processes}
"""Openers of carriers that simulate a run and carry frames as they are; a new one is added here."""


def test_every_case_is_kept():
    unwritten = sorted(set(CASES) - set(KEPT))
    assert not unwritten, f"write them: python -m tests.synthesizers.golden {' '.join(unwritten)}"
    assert set(KEPT) == {"arithmetic", *CASES}


def cases(*quick):
    """All cases; those that take long are marked slow."""
    return pytest.mark.parametrize(
        "name",
        [pytest.param(n, marks=[] if n.startswith(quick) else pytest.mark.slow) for n in CASES],
    )


@pytest.fixture(autouse=True)
def same_floats():
    if KEPT["arithmetic"] != arithmetic():
        pytest.skip("floats of this machine, or of this JAX, are not those of golden.json")


@cases(*_QUICK)
def test_a_seeded_run_is_what_it_was(name):
    assert golden(name) == KEPT[name]


@pytest.mark.parametrize("opener", PLAIN_OPENERS.values(), ids=PLAIN_OPENERS)
@cases("aim that", "secure")
def test_parties_behind_another_carrier_give_the_same(name, opener, tmp_path):
    """A coordinator needs nothing but its session: no state is shared with a party."""
    assert golden(name, tmp_path, opener) == KEPT[name]


@cases("aim that", "secure", "flaim that")
def test_parties_that_answer_sealed_frames_give_the_same(name, tmp_path):
    if CASES[name].synth.method.decode is not None:
        pytest.skip("its decoders stay with the parties; test_network.py compares its rows")
    digests = golden(name, tmp_path, in_frames)
    # Frames are larger than what they seal, and nothing is simulated: fit.json says both.
    assert digests["saved"].pop("fit.json")
    expected = {**KEPT[name], "saved": dict(KEPT[name]["saved"])}
    expected["saved"].pop("fit.json")
    assert digests == expected
