import json

import numpy as np
import pytest
from hypothesis import given
from safetensors.numpy import save_file

from siloweave.errors import DataError
from siloweave.models.mrf import MRF
from tests.models.small import domain_of, models, random_model

MODEL = random_model(domain_of(2, 3), [("a", "b"), ("b",)], 2, total=0.1 + 0.2)


@pytest.fixture
def path(tmp_path):
    MODEL.save(tmp_path / "model")
    return tmp_path / "model"


@given(models())
def test_a_model_comes_back_bit_for_bit(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    model.save(path)
    again = MRF.load(path)
    assert again.domain == model.domain
    assert again.total == model.total
    assert list(again.potentials) == list(model.potentials)
    for clique, table in model.potentials.items():
        np.testing.assert_array_equal(again.potentials[clique], table)


def test_the_same_rows_are_drawn_from_what_was_saved(path):
    for mine, theirs in zip(
        MODEL.sample(99, key=1).columns, MRF.load(path).sample(99, key=1).columns, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_a_cut_file_is_refused_wherever_it_is_cut(path):
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match="model"):
            MRF.load(path)


def test_a_flipped_byte_is_refused_or_leaves_a_model(path):
    data = bytearray(path.read_bytes())
    refused = 0
    for i in range(len(data)):
        for flip in (0x01, 0x10, 0x80):
            path.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            try:
                MRF.load(path).marginal(("a",))
            except DataError:
                refused += 1
    assert refused > len(data)


def header(**changed):
    return {
        "format": "siloweave-mrf-1",
        "total": "3.0",
        "names": json.dumps(["a", "b"]),
        "sizes": json.dumps([2, 3]),
        "cliques": json.dumps([["a", "b"]]),
    } | changed


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "siloweave-mrf-2"},
        {"names": "3"},
        {"names": '["a"]'},
        {"names": '["a", "a"]'},
        {"names": "[1, 2]"},
        {"names": "{"},
        {"sizes": "[2, 4]"},
        {"sizes": '["2", "3"]'},
        {"sizes": "[0, 3]"},
        {"total": "nan"},
        {"total": "-1"},
        {"total": "many"},
        {"cliques": "null"},
        {"cliques": '[["a", "z"]]'},
        {"cliques": '[["b", "a"]]'},
        {"cliques": '[[["a"], "b"]]'},
        {"cliques": '[["a", "b"], ["a"]]'},
    ],
    ids=str,
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, changed):
    good, bad = tmp_path / "good", tmp_path / "bad"
    save_file({"0": np.zeros((2, 3))}, good, metadata=header())
    assert MRF.load(good).total == 3.0
    save_file({"0": np.zeros((2, 3))}, bad, metadata=header(**changed))
    with pytest.raises(DataError, match="bad"):
        MRF.load(bad)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_tables_that_are_no_potentials_are_refused(tmp_path, value):
    save_file({"0": np.full((2, 3), value)}, tmp_path / "m", metadata=header())
    with pytest.raises(DataError, match="not of numbers"):
        MRF.load(tmp_path / "m")


def test_other_files_are_no_models(tmp_path):
    save_file({"0": np.zeros(3)}, tmp_path / "weights")
    for name, content in {"text": b"hello", "pickle": b"\x80\x04N.", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
    for name in ("weights", "text", "pickle", "empty", "missing"):
        with pytest.raises(DataError, match=name):
            MRF.load(tmp_path / name)
