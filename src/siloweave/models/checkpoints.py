"""Checkpoints of a training run: arrays as safetensors, the rest as JSON, never half written."""

from __future__ import annotations

import json
import os
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from siloweave.errors import DataError

__all__ = ["Keeper"]

_FORMAT = "siloweave-training-1"
_NAME = "training.json"


class Keeper:
    """Writes the state of a run now and then, and reads the last one.

    A state is written to a file of its own; then `training.json`, which names it, is replaced in
    one move; then the state before is removed. Killed at any moment, one of the two is whole.

    The folder holds what was learned from rows so far: it is as private as the rows.

    Args:
        folder: Where; nothing is written when None.
        every: Seconds between two checkpoints.
    """

    def __init__(self, folder: Path | None, *, every: float) -> None:
        self.folder, self.every = folder, every
        self._facts: dict[str, Any] = {}
        self._latest: tuple[int, Any] | None = None
        self._written, self._at = -1, time.monotonic()

    def open(self, arrays: Any, *, run: dict[str, Any], data: Any) -> tuple[int, Any]:
        """The step and arrays to go on from; (0, `arrays`) when the folder holds none.

        Args:
            arrays: The state of a fresh run.
            run: Settings that have to be the same.
            data: A pytree of keys and rows that have to be the same.

        Raises:
            DataError: The checkpoint is damaged, or of another run.
        """
        assert self.folder is not None
        leaves = [_plain(x) for x in jax.tree.leaves(arrays)]
        shapes = [f"{x.dtype}{list(x.shape)}" for x in leaves]
        self._facts = {"format": _FORMAT, **run, "data": _digest(data), "arrays": shapes}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _NAME
        if not path.exists():
            return 0, arrays
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            step, name = int(facts.pop("step")), str(facts.pop("file"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} cannot be read as a checkpoint: {error}") from error
        for fact, value in self._facts.items():
            if facts.get(fact) != value:
                raise DataError(
                    f"{path} is the checkpoint of another run: its {fact} differs. Give every run "
                    "a folder of its own, or empty this one."
                )
        self._written = step
        return step, _filled(arrays, _read(self.folder / name, len(leaves)))

    def keep(self, step: int, arrays: Any) -> None:
        """Note the state after `step`, and write it if the last checkpoint is old."""
        if self.folder is None:
            return
        self._latest = (step, arrays)
        if time.monotonic() - self._at >= self.every:
            self.flush()

    def flush(self) -> None:
        """Write the state noted last, unless it is on disk."""
        if self.folder is None or self._latest is None or self._latest[0] == self._written:
            return
        step, arrays = self._latest
        tensors = {f"{i:05d}": _plain(x) for i, x in enumerate(jax.tree.leaves(arrays))}
        name = f"state-{step}.safetensors"
        _replace(self.folder / name, save(tensors))
        facts = {**self._facts, "step": step, "file": name}
        _replace(self.folder / _NAME, json.dumps(facts, indent=1).encode())
        for old in self.folder.glob("state-*.safetensors"):
            if old.name != name:
                old.unlink(missing_ok=True)
        self._written, self._at = step, time.monotonic()


def _plain(leaf: Any) -> NDArray[Any]:
    """An array as NumPy knows it; keys of jax as their numbers."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.ascontiguousarray(np.asarray(leaf)).reshape(leaf.shape)


def _filled(arrays: Any, read: list[NDArray[Any]]) -> Any:
    leaves, structure = jax.tree.flatten(arrays)
    fresh = [
        jax.random.wrap_key_data(jnp.asarray(new), impl=jax.random.key_impl(old))
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key)
        else jnp.asarray(new)
        for old, new in zip(leaves, read, strict=True)
    ]
    return jax.tree.unflatten(structure, fresh)


def _digest(data: Any) -> str:
    digest = blake2b(digest_size=16)
    for leaf in jax.tree.leaves(data):
        array = _plain(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read(path: Path, count: int) -> list[NDArray[Any]]:
    try:
        with safe_open(str(path), framework="numpy") as file:
            return [file.get_tensor(f"{i:05d}") for i in range(count)]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a checkpoint: {error}") from error


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
