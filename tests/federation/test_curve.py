"""Points from digests, secret powers, and maps that hide their keys."""

import os

import numpy as np
import pytest

from siloweave.federation import curve

P = 2**255 - 19


def on_curve(point):
    x = int.from_bytes(point, "little")
    return pow(x**3 + 486662 * x**2 + x, (P - 1) // 2, P) in (0, 1)


def points_of(data):
    return [data[i : i + 32] for i in range(0, len(data), 32)]


def test_digests_map_to_the_point_that_the_standard_gives():
    """RFC 9380, appendix J.4.2, curve25519_XMD:SHA-512_ELL2_NU_, the empty message."""
    u = 0x608D892B641F0328523802A6603427C26E55E6F27E71A91A478148D45B5093CD
    assert curve.map_to_curve([u]) == [
        0x51125222DA5E763D97F3C10FCC92EA6860B9CCBBD2EB1285728F566721C1E65B
    ]


def test_every_digest_maps_to_the_curve_and_never_to_its_twist():
    numbers = [0, 1, P - 1, *(int.from_bytes(os.urandom(32), "little") % P for _ in range(60))]
    for x in curve.map_to_curve(numbers):
        assert 0 <= x < P
        assert on_curve(x.to_bytes(32, "little"))


def test_powers_commute():
    digests, a, b = os.urandom(64 * 5), os.urandom(32), os.urandom(32)
    first = curve.powers(curve.hashed_powers(digests, a), b)
    assert first == curve.powers(curve.hashed_powers(digests, b), a)
    assert len(set(points_of(first))) == 5


def test_a_blinding_is_undone_exactly():
    pairs = [pair for _ in range(60) if (pair := curve.invertible(os.urandom(32)))]
    assert 5 < len(pairs) < 60, "about every second scalar has an inverse"
    digests, power = os.urandom(64 * 4), os.urandom(32)
    for scalar, undo in pairs[:3]:
        raised = curve.powers(curve.hashed_powers(digests, scalar), power)
        assert curve.powers(raised, undo) == curve.hashed_powers(digests, power)
        assert raised != curve.hashed_powers(digests, power)
        product = int.from_bytes(scalar, "little") * int.from_bytes(undo, "little")
        assert product % curve.ORDER == 1


@pytest.mark.parametrize("point", [0, 1, P - 1], ids=["zero", "one", "minus one"])
def test_a_point_of_small_order_is_refused(point):
    with pytest.raises(ValueError, match="shared key"):
        curve.powers(point.to_bytes(32, "little"), os.urandom(32))


def test_processes_compute_what_one_computes(monkeypatch):
    monkeypatch.setattr(curve, "_LEAST", 3)
    digests, power = os.urandom(64 * 7), os.urandom(32)
    alone = curve.hashed_powers(digests, power)
    started = []
    elsewhere = curve._elsewhere
    monkeypatch.setattr(curve, "_elsewhere", lambda *a: started.append(1) or elsewhere(*a))
    monkeypatch.setattr(curve, "_compute", None)  # so that nothing can be computed here
    assert curve.hashed_powers(digests, power, 2) == alone
    assert len(started) == 2


def test_where_no_process_can_be_started_one_computes(monkeypatch):
    monkeypatch.setattr(curve, "_LEAST", 3)
    digests, power = os.urandom(64 * 7), os.urandom(32)
    monkeypatch.setattr(curve.sys, "executable", "/not/there")
    assert curve.hashed_powers(digests, power, 2) == curve.hashed_powers(digests, power)


@pytest.mark.parametrize("number", [0, 1, 2, 17, 500])
def test_a_hidden_map_gives_its_values(number):
    keys = [os.urandom(64) for _ in range(number)]
    values = np.frombuffer(os.urandom(16 * number), dtype=np.uint64).reshape(number, 2)
    seed, table = curve.hide(keys, values)
    assert table.shape == (curve.cells(number), 2)
    np.testing.assert_array_equal(curve.look_up(keys, seed, table), values)


def test_a_hidden_map_gives_other_keys_something_random():
    keys = [b"%d" % i for i in range(20_000)]  # few share all three cells: chance 8e-6 of any
    values = np.zeros((len(keys), 2), dtype=np.uint64)
    seed, table = curve.hide(keys, values)
    found = curve.look_up([b"x%d" % i for i in range(300)], seed, table)
    assert (found.any(axis=1)).sum() == 300
    assert len(np.unique(found[:, 0])) == 300


def test_a_hidden_map_does_not_show_which_cells_are_taken():
    """With random values, every bit of every cell is a coin."""
    keys = [os.urandom(64) for _ in range(2000)]
    values = np.frombuffer(os.urandom(32_000), dtype=np.uint64).reshape(-1, 2)
    _, table = curve.hide(keys, values)
    ones = np.unpackbits(table.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(table.size * 64)
    assert len(np.unique(table)) == table.size
