"""Every settings class of the models refuses numbers that nothing can be trained with."""

from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

from siloweave import models
from siloweave.errors import InputError

NUMBERS = (float("nan"), float("inf"), -1.0)
WRONG = {int: (0, -1, 1.5), float: NUMBERS, tuple: ((0,), (8, -1), (1.5,), 8, "wide")}
# Numbers that may be None, and what else is wrong of one setting.
OPTIONAL = {"clip": (*NUMBERS, 0.0), "clip_range": (*NUMBERS, 0.0), "passes": (*NUMBERS, 0.0)}
OPTIONAL |= {"minutes": (*NUMBERS, 0.0), "work": (*NUMBERS, 0.0)}
OPTIONAL |= {"pool": WRONG[int], "latent": WRONG[int]}
PAIRS = ((0.5,), (0.5, 1.0), (-0.1, 0.5), (float("nan"), 0.9), (0.5, 0.9, 0.9))
ABOVE = ("rate", "critic_rate", "generator_rate", "learning_rate", "block_rate")
ABOVE += ("temperature", "epsilon")
BELOW = ("decay", "average", "dropout", "watched")
NAMES = ("numbers", "heads", "prediction", "choices", "schedule", "act", "identifiability")
NAMES += ("family", "scores")


def settings_classes():
    found = {}
    for module in iter_modules(models.__path__):
        home = import_module(f"siloweave.models.{module.name}")
        for name, kind in vars(home).items():
            if name.endswith("Settings") and is_dataclass(kind):
                found[name] = kind
    return found


CLASSES = settings_classes()


def wrong_values(field, default):
    """What a field must not be."""
    if field in NAMES:
        return ("none such",)
    if field == "betas":
        return PAIRS
    if field in ("epochs", "matched", "passes_from"):
        return (-1, 1.5)
    if field == "waves":
        return (-1, 1.5, 17)
    if field in OPTIONAL:
        return OPTIONAL[field]
    more = (0.0,) if field in ABOVE else ()
    if field in BELOW and default > 1e-3:  # a share; else what is added to a gradient
        more = (1.0,)
    return (*WRONG[type(default)], *more)


def cases():
    for name, kind in CLASSES.items():
        usual = kind()
        for field in fields(kind):
            default = getattr(usual, field.name)
            within = is_dataclass(default) or isinstance(default, bool | dict)
            for value in () if within else wrong_values(field.name, default):
                yield pytest.param(kind, field.name, value, id=f"{name}-{field.name}-{value}")


@pytest.mark.parametrize(("kind", "name", "value"), list(cases()))
def test_what_cannot_be_trained_is_refused_by_name(kind, name, value):
    with pytest.raises(InputError, match=rf"\b{name}\b"):
        kind(**{name: value})


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_defaults_and_whole_numbers_of_numpy_are_good(kind):
    usual = kind()
    counts = [f.name for f in fields(kind) if type(getattr(usual, f.name)) is int]
    assert kind(**{name: np.int64(getattr(usual, name)) for name in counts}) == usual


def test_all_classes_are_found():
    assert len(CLASSES) == 9
    assert {"GANSettings", "PrivateGANSettings", "VertiGANSettings"} <= set(CLASSES)


def test_lists_become_tuples_and_no_layer_is_well():
    made = CLASSES["GANSettings"](generator=[], critic=[8], betas=[0.5, 0.9])
    assert (made.generator, made.critic, made.betas) == ((), (8,), (0.5, 0.9))
