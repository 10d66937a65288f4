"""A setting with few values has one of them, in every method, or nothing is made."""

from dataclasses import fields
from typing import Literal, get_origin, get_type_hints

import pytest

import siloweave as sw
from siloweave.errors import InputError
from siloweave.methods.registry import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_a_word_that_is_no_value_of_a_setting_is_refused(name):
    kind = METHODS[name]
    hints = get_type_hints(kind)
    for one in (one for one in fields(kind) if one.init):
        if hints[one.name] is bool or get_origin(hints[one.name]) is Literal:
            with pytest.raises(InputError, match=f"{one.name}='other' must be one of"):
                kind(**{one.name: "other"})


@pytest.mark.parametrize("kind", [sw.AIM, sw.FLAIM, sw.TwoRound, sw.SecureTwoRound, sw.DistAIM])
def test_fits_take_whole_sweeps_and_shrink_by_no_less_than_nothing(kind):
    known = {one.name for one in fields(kind)}
    for name in known & {"sweeps", "plan_sweeps", "final_sweeps"}:
        with pytest.raises(InputError, match=f"{name}=0 must be a whole number, 1 or more"):
            kind(**{name: 0})
    for name in known & {"shrinkage", "plan_shrinkage"}:
        with pytest.raises(InputError, match=f"{name}=-1 must be a number"):
            kind(**{name: -1})
