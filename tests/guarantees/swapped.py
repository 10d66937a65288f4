"""A module with other functions in it, as one file of the package sees it."""

from types import ModuleType, SimpleNamespace

import pytest


def swap(patch: pytest.MonkeyPatch, user: ModuleType, name: str, **functions: object) -> None:
    """Let `user` see the module that it calls `name` with these functions, and nobody else.

    A function of the module calls those of the module itself, as before. Without functions, `user`
    goes on seeing the module as it is now, whatever is replaced in it later.
    """
    patch.setattr(user, name, with_functions(getattr(user, name), **functions))


def with_functions(module: ModuleType, **functions: object) -> SimpleNamespace:
    """Return what a module has, with other functions under some of its names."""
    return SimpleNamespace(**{**vars(module), **functions})
