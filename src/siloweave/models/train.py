"""The one training loop without privacy: its batches, its checkpoints, and the usual step.

A model brings a pure function `update(state, batch, key) -> (state, loss)`. The loop brings
batches, keys, progress, checkpoints, and the error when training diverges. Whole stretches of steps
are compiled: which rows are in which batch is drawn on the host, from the key and the step alone,
and the compiled loop gathers them.

**Guarantee**: none. This loop reads losses of real rows; private networks train by
`models.stepwise` instead.
"""

from __future__ import annotations

import json
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from siloweave.errors import CapacityError, DataError, InputError, naming_file, whole
from siloweave.models.nets import Array, Groups, averaged
from siloweave.progress import Progress, duration, silent
from siloweave.tables.arrays import Ints
from siloweave.tables.keys import fold_in, generator

_State = TypeVar("_State")

Loss = Callable[[Any, Any, Array], Array]
"""The loss of one row: `loss(model, row, key)`, a number."""
Sampler = Callable[[Any, Array], Any]
"""A batch from all rows and a key; runs inside the compiled loop."""

Between = Callable[[_State, int], tuple[_State, str, bool]]
"""What is done between two stretches, from a state and its step: the state to continue from,
a note for the reader who waits, and whether training is over."""

_FORMAT = "siloweave-training-1"
_LOOKS = 16  # times at which a row held back is judged
_LOOK_EVERY = 0.05  # share of the training between two looks at rows held back
_MOST_LOOKS = 32  # looks that are kept: one every twentieth, and one at the end
_PATIENCE = 5 / 3  # times the steps of the best look, after which training ends
_LEAST_SHARE = 0.2  # of the training before which it does not end
_WATCHING = 2**31 - 1  # what the key of looks is folded with: no step has this number
_NAME = "training.json"
_STRETCH = 1.0  # seconds between two reports, about
_FEW = 16  # steps that are taken without a report between them


# Checkpoints


class Keeper:
    """Writes the state of a run every so many seconds, and reads the last one.

    A state is written to a file of its own; then `training.json`, which names it, is replaced in
    one move; then the state before is removed. Killed at any moment, one of the two is whole.
    Without a folder nothing is written.

    The folder holds what was learned from rows so far: it is as private as the rows.
    """

    def __init__(self, folder: Path | None, *, every: float) -> None:
        self.folder = folder
        self.every = every
        self._run_facts: dict[str, Any] = {}
        self._latest: tuple[int, Any] | None = None
        self._written_step = -1
        self._written_at = time.monotonic()

    def open(self, arrays: Any, *, run: dict[str, Any], data: Any) -> tuple[int, Any]:
        """Return the step and arrays to continue from: a checkpoint's, or 0 and `arrays`.

        Raises DataError where it is damaged, or of a run with other settings, keys or rows.
        """
        if self.folder is None:
            return 0, arrays

        leaves = [_plain(leaf) for leaf in jax.tree.leaves(arrays)]
        self._run_facts = {
            "format": _FORMAT,
            **run,
            "data": _digest(data),
            "arrays": [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves],
        }

        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _NAME
        if not path.exists():
            return 0, arrays
        checkpoint = _Checkpoint.read(path)
        for fact, value in self._run_facts.items():
            if checkpoint.facts.get(fact) != value:
                raise DataError(
                    f"{path} is the checkpoint of another run: its {fact} differs. Give every run "
                    "a folder of its own, or empty this one."
                )
        stored = _read_arrays(self.folder / checkpoint.file, len(leaves))
        self._written_step = checkpoint.step
        return checkpoint.step, _filled(arrays, stored)

    def keep(self, step: int, arrays: Any) -> None:
        """Note the state after `step`, and write it if the last checkpoint is old."""
        if self.folder is None:
            return
        self._latest = (step, arrays)
        if time.monotonic() - self._written_at >= self.every:
            self.flush()

    def flush(self) -> None:
        """Write the state noted last, unless it is on disk."""
        if self.folder is None or self._latest is None:
            return
        step, arrays = self._latest
        if step == self._written_step:
            return

        # The order matters: `training.json` never names a file that is not whole, and the state
        # before is removed only when no file names it.
        leaves = jax.tree.leaves(arrays)
        tensors = {f"{i:05d}": _plain(leaf) for i, leaf in enumerate(leaves)}
        name = f"state-{step}.safetensors"
        _write_whole(self.folder / name, save(tensors))
        facts = {**self._run_facts, "step": step, "file": name}
        _write_whole(self.folder / _NAME, json.dumps(facts, indent=1).encode())
        for state_file in self.folder.glob("state-*.safetensors"):
            if state_file.name != name:
                state_file.unlink(missing_ok=True)

        self._written_step = step
        self._written_at = time.monotonic()


class _Checkpoint(NamedTuple):
    """What `training.json` says."""

    step: int  # that the state has behind it
    file: str  # name of the file of the state, in the same folder
    facts: dict[str, Any]  # on the run

    @classmethod
    def read(cls, path: Path) -> _Checkpoint:
        """Return what a file says; raises DataError for one that `Keeper` did not write."""
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            step = int(facts.pop("step"))
            file = str(facts.pop("file"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path} cannot be read as a checkpoint: {error}"
            ) from error
        return cls(step, file, facts)


def _read_arrays(path: Path, count: int) -> list[NDArray[Any]]:
    """Return the arrays of a state's file; raises DataError if it does not hold so many."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            return [file.get_tensor(f"{i:05d}") for i in range(count)]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a checkpoint: {error}") from error


def _plain(leaf: Any) -> NDArray[Any]:
    """Return an array as NumPy knows it; keys of jax as their numbers."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.ascontiguousarray(np.asarray(leaf)).reshape(leaf.shape)


def _filled(arrays: Any, stored: list[NDArray[Any]]) -> Any:
    """Return a tree like another one with stored arrays; those of keys are keys again."""
    leaves, structure = jax.tree.flatten(arrays)
    fresh = []
    for leaf, stored_array in zip(leaves, stored, strict=True):
        array = jnp.asarray(stored_array)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            array = jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf))
        fresh.append(array)
    return jax.tree.unflatten(structure, fresh)


def _digest(data: Any) -> str:
    """Return a digest by which a run knows its rows and key, without storing them."""
    digest = blake2b(digest_size=16)
    for leaf in jax.tree.leaves(data):
        array = _plain(leaf)
        # Without type and shape, other arrays could have the same bytes.
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        descriptor = os.open(temporary, flags, 0o600)
        with naming_file(path), os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # On disk before it gets its name, or a crash could leave the name without the bytes.
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# Batches


class BatchPlan(NamedTuple):
    """How batches are made."""

    name: str  # for the checkpoint, from which only a run with the same plan continues
    most: int  # steps of the longest stretch
    # From a step and a number of steps to the rows in each batch, (most, batch).
    picks: Callable[[int, int], NDArray[np.int32] | None]
    sampler: Sampler | None = None  # a function `(rows, key) -> batch`, or None


def plan_of(
    sampler: Sampler | None, rows: Any, *, batch: int, key: Array, most: int
) -> BatchPlan:
    """Return the plan of a sampler, or of shuffled rows, see `train`.

    Raises InputError for no rows, rows of unequal number, NaN, or more rows in a batch than there
    are.
    """
    if sampler is not None:
        return BatchPlan("own", most, lambda step, steps: None, sampler)

    _check_finite(rows)
    count = _count(rows)
    if batch > count:
        raise InputError(
            f"train: batch = {batch} is more than the {count} rows there are. Use a batch of "
            f"at most {count}."
        )
    seeds = _seeds(key)
    batches = count // batch  # in an epoch: one permutation, cut into whole batches

    # A stretch that begins in one epoch often ends in the next.
    @lru_cache(maxsize=2)
    def order(epoch: int) -> Ints:
        return generator(fold_in(seeds, "epoch", epoch)).permutation(count)

    def picks(step: int, steps: int) -> NDArray[np.int32]:
        # One shape whatever the number of steps, so that one program serves all stretches.
        index = np.zeros((most, batch), np.int32)
        for i in range(steps):
            epoch, place = divmod(step + i, batches)
            start = place * batch
            index[i] = order(epoch)[start : start + batch]
        return index

    return BatchPlan("shuffled", most, picks)


def _seeds(key: Array) -> np.random.SeedSequence:
    """Return NumPy's seed from a key of jax."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    return np.random.SeedSequence([int(word) for word in words])


def _check_finite(rows: Any) -> None:
    """Refuse rows that hold NaN or an infinity; the error names the first."""
    for leaf in jax.tree.leaves(rows):
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        if is_float and not finite(leaf):
            is_wrong = ~np.isfinite(np.asarray(leaf))
            first_row, *_ = np.argwhere(is_wrong)[0]
            raise InputError(
                f"train: rows hold NaN or an infinity, first in row {first_row}. "
                "Encode missing values, or leave such rows out."
            )


def _count(rows: Any) -> int:
    """Return the number of rows; raises InputError for none, or arrays of unequal length."""
    counts = set()
    for leaf in jax.tree.leaves(rows):
        # A number has no leading axis: it counts as no rows.
        length, *_ = leaf.shape or (0,)
        counts.add(length)
    if len(counts) != 1:
        raise InputError(
            f"train: the arrays of rows have {sorted(counts)} rows. All need one leading axis of "
            "the same length."
        )
    count = counts.pop()
    if count == 0:
        raise InputError("train: there are no rows. Give at least one.")
    return count


def finite(tree: Any) -> bool:
    """Return whether all floats of a tree are finite; on the host, so nothing is compiled."""
    # One walk through its modules, which take longer than their arrays.
    floats = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return all(bool(np.isfinite(np.asarray(array)).all()) for array in floats)


# The loop


class TrainingError(InputError):
    """Training diverged.

    Attributes:
        step: The first step whose loss or state is no finite number, counted from 1.
        state: The last state that was seen to be finite.
        state_step: How many steps that state has behind it.
    """

    def __init__(self, message: str, *, step: int, state: Any, state_step: int) -> None:
        super().__init__(message)
        self.step = step
        self.state = state
        self.state_step = state_step


def mean_gradient(
    loss: Loss, model: _State, batch: Any, key: Array
) -> tuple[_State, Array]:
    """Return the gradient of the mean loss of a batch, without privacy.

    The model is a pytree whose floating point arrays are trained; every row gets a key of its own.
    Returns the gradient, shaped as the model (None where nothing is trained), and the mean loss.
    """
    size = jax.tree.leaves(batch)[0].shape[0]
    keys = jax.random.split(key, size)

    def mean(model: _State) -> Array:
        return jax.vmap(loss, in_axes=(None, 0, 0))(model, batch, keys).mean()

    value, gradient = eqx.filter_value_and_grad(mean)(model)
    return gradient, value


class _Job(NamedTuple):
    """What stays the same during a call of `train`."""

    update: Any
    rows: Any
    static: Any  # the parts of the state that are no arrays
    plan: BatchPlan
    key: Array
    between: Any  # a function between stretches, or None

    def paused(self, arrays: Any, step: int) -> tuple[Any, str, bool]:
        """Call `between` with the whole state; returns what it does, of arrays alone."""
        if self.between is None:
            return arrays, "", False
        before = eqx.combine(arrays, self.static)
        state, note, is_over = self.between(before, step)
        return eqx.filter(state, eqx.is_array), note, is_over


class _Stretch(NamedTuple):
    """Steps between two reports; arrays, since Python's numbers would be compiled in."""

    first: Array  # how many steps were taken before it
    steps: Array  # how many it has, at most `BatchPlan.most`


def train(
    state: _State,
    update: Callable[[_State, Any, Array], tuple[_State, Array]],
    rows: Any,
    *,
    steps: int,
    batch: int,
    key: Array,
    sampler: Sampler | None = None,
    epoch_steps: int = 100,
    progress: Progress = silent,
    store: Path | None = None,
    checkpoint_seconds: float = 30.0,
    first: int = 0,
    between: Between[_State] | None = None,
) -> _State:
    """Run `steps` updates, compiled in stretches.

    Args:
        state: Any pytree: networks, optimiser state, moving averages.
        update: Pure; from a state, a batch and a key to the next state and a loss. One compiled
            program serves all calls with an equal `update`: a function of a module, or a frozen
            dataclass or Equinox module with `__call__`. A closure is compiled anew in each call.
        rows: A pytree of arrays with equal leading axis (any pytree with a sampler of your own).
        steps: Updates in total, those before an interruption included.
        batch: Rows in a batch, at most all rows.
        key: A jax key. The same key, arguments and machine give the same bits.
        sampler: A function `(rows, key) -> batch`, compiled with the loop. None: every epoch is a
            permutation of the rows cut into whole batches; what is left over waits for the next.
        epoch_steps: Most steps between two reports; fewer when steps are slow.
        progress: Called with the step, the mean loss and the time left, from the start.
        store: Folder for checkpoints. A call that finds one continues from it, to the same
            result. Two `update`s of equal shapes are not distinguished: give each its own folder.
        checkpoint_seconds: Least time between two checkpoints; one is always written at the end
            and when the loop is left by an error.
        first: Updates that `state` has behind it, so that a training in parts draws the same
            batches as one in a single call.
        between: Called before the first stretch and after each, outside the compiled loop. What it
            returns has the structure of the state; it may end training before all steps.

    Returns:
        The state after `steps` updates, or after those at which `between` ended training.

    Raises:
        InputError: An argument is out of bounds, rows hold NaN, or `update` breaks its shape.
        TrainingError: A loss or the state became infinite or NaN; the last good state is in the
            error, and in `store`.
        DataError: `store` holds a checkpoint of another run.
        CapacityError: The device had no memory left; a call with the same `store` goes on.

    Example:
        >>> def update(w, batch, key):
        ...     gradient, loss = mean_gradient(lambda w, x, k: (w - x) ** 2, w, batch, key)
        ...     return w - 0.1 * gradient, loss
        >>> rows = jnp.array([1.0, 2.0, 3.0])
        >>> w = train(jnp.array(0.0), update, rows, steps=50, batch=3, key=jax.random.key(0))
        >>> round(float(w), 3)
        2.0
    """
    whole("steps", steps)
    whole("batch", batch, 1)
    whole("epoch_steps", epoch_steps, 1)
    if not 0 <= first <= steps:
        raise InputError(
            f"train: first = {first} must be a whole number from 0 to {steps}."
        )
    with _device_memory(batch):
        rows = jax.tree.map(jnp.asarray, rows)
        plan = plan_of(sampler, rows, batch=batch, key=key, most=epoch_steps)
        arrays, static = eqx.partition(state, eqx.is_array)
        arrays = _strongly_typed(arrays)
        job = _Job(update, rows, static, plan, key, between)
        keeper = Keeper(store, every=checkpoint_seconds)
        run = {"batch": batch, "sampler": plan.name}
        start, arrays = keeper.open(arrays, run=run, data=(key, rows))
        try:
            arrays = _loop(job, arrays, max(start, first), steps, progress, keeper)
        finally:
            keeper.flush()
    final: _State = eqx.combine(arrays, static)
    return final


@contextmanager
def _device_memory(batch: int) -> Iterator[None]:
    """Say in our words that a card, or the machine, had no memory left for a training."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text and "out of memory" not in text.lower():
            raise
        device = jax.devices()[0]
        # Without JAX's own text: its sizes follow from a party's number of rows.
        raise CapacityError(
            f"training: the device {device.device_kind!r} ({device.platform}) has no memory left "
            f"at batch = {batch}. Lower batch or the sizes of the networks, end other programs "
            "that use the device, or train on the processor: set JAX_PLATFORMS=cpu before Python "
            "starts."
        ) from error


def _loop(
    job: _Job, arrays: Any, step: int, steps: int, progress: Progress, keeper: Keeper
) -> Any:
    """Take steps up to `steps`, in stretches of about a second; returns the arrays after them.

    Raises TrainingError where a stretch ends in NaN or an infinity.
    """
    # A round of a few steps would take longer to report than to compute.
    length = _FEW if steps - step <= _FEW else 1
    pace = 0.0  # seconds a step, 0 until it is measured
    is_compiled = False
    text = "compiling" if step < steps else "done"
    progress(text, step / max(steps, 1))
    arrays, _, is_over = job.paused(arrays, step)
    while step < steps and not is_over:
        count = min(length, steps - step, job.plan.most)
        began = time.monotonic()
        after, padded_losses = _advance(
            job.update,
            job.static,
            job.plan.sampler,
            arrays,
            job.rows,
            job.plan.picks(step, count),
            _Stretch(jnp.int32(step), jnp.int32(count)),
            job.key,
            job.plan.most,
        )
        losses = np.asarray(padded_losses)[:count]
        is_finite = finite(after) and np.isfinite(losses).all()
        elapsed = time.monotonic() - began

        # Before it is stored: a checkpoint that holds NaN could not be continued from.
        if not is_finite:
            raise _diverged(job, arrays, step, losses, keeper)
        step += count
        arrays, note, is_over = job.paused(after, step)
        keeper.keep(step, arrays)

        length = 2
        if is_compiled:  # the first stretch includes the compilation
            pace = elapsed / count
            longest = int(_STRETCH / max(pace, 1e-9))
            length = max(1, min(8 * count, longest))
        is_compiled = True

        if not note and pace and step < steps:
            note = f", {duration((steps - step) * pace)} left"
        text = f"step {step:,} of {steps:,}, loss {losses.mean():.4g}{note}"
        progress(text, step / steps)
    return arrays


@eqx.filter_jit
def _advance(
    update: Any, static: Any, sampler: Any, arrays: Any, rows: Any, picks: Any,
    stretch: _Stretch, key: Array, most: int,
) -> tuple[Any, Array]:  # fmt: skip
    """Return the arrays after a stretch, and its losses in the first of `most` places.

    This is what is compiled: a loop whose number of steps is an array, so that one program serves
    stretches of all lengths. Only `most` is compiled in.
    """

    def body(i: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        arrays, losses = carry
        # Keys by a step's number: they do not depend on how steps are cut into stretches.
        step_key = jax.random.fold_in(key, stretch.first + i)
        batch_key, update_key = jax.random.split(step_key)
        networks = eqx.combine(arrays, static)

        if picks is None:
            batch = sampler(rows, batch_key)
        else:
            index = picks[i]
            batch = jax.tree.map(
                lambda x: x.at[index].get(mode="promise_in_bounds"), rows
            )
        state, loss = update(networks, batch, update_key)
        return _same_shapes(state, arrays), losses.at[i].set(_number(loss))

    carry = (arrays, jnp.zeros(most, jnp.float32))
    after, losses = jax.lax.fori_loop(0, stretch.steps, body, carry)
    return after, losses


def _same_shapes(state: Any, arrays: Any) -> Any:
    """Return a state's arrays; raises InputError where an update changed a shape or type."""
    fresh = eqx.filter(state, eqx.is_array)
    old_structure = str(jax.tree.structure(arrays))
    new_structure = str(jax.tree.structure(fresh))
    if old_structure != new_structure:
        raise InputError(
            f"update: returned a state of structure {new_structure} for one of {old_structure}."
        )
    for old, new in zip(jax.tree.leaves(arrays), jax.tree.leaves(fresh), strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise InputError(
                f"update: made an array of shape {old.shape} and type {old.dtype} into one of "
                f"shape {new.shape} and type {new.dtype}. A state must keep its shapes and types."
            )
    return _strongly_typed(fresh)


def _strongly_typed(arrays: Any) -> Any:
    """Return arrays without jax's weak types, which would differ between a loop's steps."""

    def strong(x: Any) -> Any:
        if not getattr(x, "weak_type", False):
            return x
        return jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(strong, arrays)


def _number(loss: Any) -> Array:
    """Return a loss as float32; raises InputError if it is no single number."""
    value = jnp.asarray(loss, jnp.float32)
    if value.shape != ():
        raise InputError(
            f"update: the loss has shape {value.shape}; it must be one number."
        )
    return value


def _diverged(
    job: _Job, arrays: Any, step: int, losses: Any, keeper: Keeper
) -> TrainingError:
    """Return the error for a stretch behind `step`, with the state before the stretch."""
    # A state can overflow while all losses are finite: then the last step is named.
    place = len(losses) - 1
    fault = "the state holds NaN or infinities"
    bad_places = np.flatnonzero(~np.isfinite(losses))
    if bad_places.size:
        place = int(bad_places[0])
        fault = f"the loss is {losses[place]}"
    bad_step = step + place + 1  # counted from 1

    copy = ""
    if keeper.folder is not None:
        copy = f" and in {keeper.folder}"
    return TrainingError(
        f"training diverged: {fault} after step {bad_step}. The state after step {step} is kept "
        f"in the error{copy}. Lower the learning rate, or look for extreme values among the rows.",
        step=bad_step,
        state=eqx.combine(arrays, job.static),
        state_step=step,
    )


# The usual step: AdamW with a falling rate, and the moving average of the weights


class State(eqx.Module):
    """What training carries from step to step; the average is what samples."""

    net: Any
    average: Any
    moments: optax.OptState
    step: Array


class Look(NamedTuple):
    """How well rows held back were learned at one time of a training.

    Attributes:
        step: Steps taken by then.
        seconds: Since training began, without what was spent before an interruption.
        loss: The mean loss of rows held back.
    """

    step: int
    seconds: float
    loss: float


class TrainedNetwork(NamedTuple):
    """A network after training, and how well rows held back were learned meanwhile."""

    net: Any
    looks: tuple[Look, ...] = ()


class WatchedState(State):
    """A state whose training may end by the clock, or where rows held back are drawn no better.

    Without a clock or without rows held back, what belongs to them stays as it was at the start.
    """

    share: Array  # of the training that is done, 0 to 1: the rate falls with it
    best: Any  # the average with the least loss on rows held back
    best_loss: Array  # its loss
    best_step: Array  # how many steps it had behind it
    # Step, seconds and loss of each look, (_MOST_LOOKS, 3); 0 where there was none.
    looks: Array


class Descent(eqx.Module):
    """A step; equal ones share a compiled program. A model overrides `losses`."""

    settings: Any = eqx.field(static=True)  # those of a diffusion or an autoencoder
    # (how many, of which size) of the categoricals
    groups: Groups = eqx.field(static=True)

    @abstractmethod
    def losses(self, net: Any, rows: Any, key: Array) -> Array:
        """Return the loss of each row of a batch, (batch,)."""

    def one(self, net: Any, row: Any, key: Array) -> Array:
        """Return the loss of one row, as private gradients need it."""
        return self.losses(net, jax.tree.map(lambda x: x[None], row), key)[0]

    def mean(self, net: Any, batch: Any, key: Array) -> Array:
        """Return the mean loss of a batch."""
        return self.losses(net, batch, key).mean()

    @property
    def is_watched(self) -> bool:
        """Whether the clock or rows held back may end training before its last step."""
        minutes = getattr(self.settings, "minutes", None)
        return minutes is not None or getattr(self.settings, "watched", 0.0) > 0

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """AdamW, its rate falling linearly to 0; of rate 1 where `moved` knows the rate."""
        settings = self.settings
        if self.is_watched:
            return optax.adamw(1.0, weight_decay=settings.weight_decay)
        rate = optax.linear_schedule(settings.learning_rate, 0.0, settings.steps)
        return optax.adamw(rate, weight_decay=settings.weight_decay)

    @eqx.filter_jit  # one program, not one for each shape
    def start(self, net: Any) -> State:
        """Return the state before the first step."""
        moments = self.optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        if not self.is_watched:
            return State(net, net, moments, jnp.array(0))
        return WatchedState(
            net=net,
            average=net,
            moments=moments,
            step=jnp.array(0),
            share=jnp.array(0.0, jnp.float32),
            best=net,
            # Finite, as a state must be.
            best_loss=jnp.array(np.finfo(np.float32).max),
            best_step=jnp.array(0, jnp.int32),
            looks=jnp.zeros((_MOST_LOOKS, len(Look._fields))),
        )

    def trained(
        self, net: Any, rows: Any, *, key: Array, progress: Progress, store: Path | None
    ) -> TrainedNetwork:
        """Train a fresh network, and return the moving average after all steps.

        With rows held back it is the average that was best on them. Errors are those of `train`.
        """
        held_back: Any = None
        between: Between[State] | None = None
        if self.is_watched:
            rows, held_back = _parted(rows, self.settings.watched, key)
            between = TrainingWatch(self, held_back, key)
        state = train(
            self.start(net),
            self,
            rows,
            steps=self.settings.steps,
            batch=min(self.settings.batch, _count(rows)),
            key=key,
            progress=progress,
            store=store,
            between=between,
        )
        if held_back is None:
            return TrainedNetwork(state.average)

        assert isinstance(state, WatchedState)
        looks = []
        for step, seconds, loss in state.looks.tolist():
            if step:  # 0 where there was no look
                looks.append(Look(int(step), seconds, loss))
        return TrainedNetwork(state.best, tuple(looks))

    def __call__(self, state: State, batch: Any, key: Array) -> tuple[State, Array]:
        """Take one step; returns the loss too."""
        loss, gradient = eqx.filter_value_and_grad(self.mean)(state.net, batch, key)
        return self.moved(state, gradient), loss

    def moved(self, state: State, gradient: Any) -> State:
        """Return the state after a step along a gradient."""
        updates, moments = self.optimiser.update(gradient, state.moments, state.net)
        if isinstance(state, WatchedState):
            # The optimiser's own rate is 1, since the clock decides how fast the rate falls.
            rate = self.settings.learning_rate * (1.0 - state.share)
            updates = jax.tree.map(lambda update: rate * update, updates)
        net = eqx.apply_updates(state.net, updates)
        average = averaged(state.average, net, self.settings.decay, state.step)
        step = state.step + 1
        return replace(state, net=net, average=average, moments=moments, step=step)

    @eqx.filter_jit
    def loss_on(self, net: Any, rows: Any, key: Array) -> Array:
        """Return the mean loss of rows held back, each at sixteen times, always the same."""

        def loss(key: Array) -> Array:
            return self.mean(net, rows, key)

        keys = jax.random.split(key, _LOOKS)
        losses: Array = jax.lax.map(loss, keys)
        return losses.mean()


def _parted(rows: Any, share: float, key: Array) -> tuple[Any, Any]:
    """Part rows into those to learn from and those held back, at random; None for no share."""
    if not share:
        return rows, None
    count = _count(rows)
    held_back = round(share * count)
    if not 0 < held_back < count:
        raise InputError(
            f"watched={share!r} of {count} rows holds back {held_back} of them: at least one must "
            "be held back and one be left. Give more rows, or set watched=0"
        )
    order = generator(fold_in(_seeds(key), "held back")).permutation(count)
    watched_places = np.sort(order[:held_back])
    learned_places = np.sort(order[held_back:])
    return _rows_at(rows, learned_places), _rows_at(rows, watched_places)


def _rows_at(rows: Any, places: Ints) -> Any:
    """Return rows at some places, of every array."""
    return jax.tree.map(lambda array: array[places], rows)


class TrainingWatch:
    """Ends a training by the clock, or where rows held back have not gained for long.

    Rows held back are looked at every twentieth of the training, or of the time that it may take.
    Training ends where the last two fifths of all steps brought nothing better, but not before a
    fifth of it is done.
    """

    def __init__(self, descent: Descent, held_back: Any, key: Array) -> None:
        self.descent = descent
        self.held_back = held_back
        self.key = jax.random.fold_in(key, _WATCHING)
        minutes = descent.settings.minutes
        self.seconds = None if minutes is None else 60.0 * minutes
        self.watching_since = time.monotonic()
        self.began: float | None = None
        self.share_at_last_look = 0.0

    def __call__(self, state: State, step: int) -> tuple[State, str, bool]:
        """Return the state with what was seen, words on it, and whether training is over."""
        assert isinstance(state, WatchedState)
        if not step:
            return state, "", False  # compiling, which comes next, is not timed
        if self.began is None:
            # Time that was spent before an interruption counts.
            spent_share = float(state.share)
            spent = spent_share * (self.seconds or 0.0)
            self.began = time.monotonic() - spent
            self.share_at_last_look = spent_share

        share, note = self._share(step, self.began)
        is_done = share >= 1.0
        watched: WatchedState = eqx.tree_at(
            lambda s: s.share, state, jnp.array(share, jnp.float32)
        )
        if self.held_back is None:
            return watched, note, is_done

        if is_done or share - self.share_at_last_look >= _LOOK_EVERY:
            self.share_at_last_look = share
            watched = self._after_look(watched, step)
        best_step = int(watched.best_step)
        if not best_step:
            return watched, note, is_done
        is_stuck = step > _PATIENCE * best_step and share >= _LEAST_SHARE
        note = f", on rows held back {float(watched.best_loss):.4g}{note}"
        return watched, note, is_done or is_stuck

    def _share(self, step: int, began: float) -> tuple[float, str]:
        """Return the share of the training that is done, and words on the time left."""
        share = step / self.descent.settings.steps
        if self.seconds is None:
            return share, ""
        # Whichever ends first: steps or time.
        elapsed = time.monotonic() - began
        share = min(max(share, elapsed / self.seconds), 1.0)
        seconds_left = max(self.seconds - elapsed, 0.0)
        return share, f", {duration(seconds_left)} left at most"

    def _after_look(self, state: WatchedState, step: int) -> WatchedState:
        """Return the state with one more look, and with its average if that is the best yet."""
        loss = float(self.descent.loss_on(state.average, self.held_back, self.key))
        look_count = int((state.looks[:, 0] > 0).sum())
        if look_count < _MOST_LOOKS:
            seconds = time.monotonic() - self.watching_since
            look = jnp.array([step, seconds, loss])
            looks = state.looks.at[look_count].set(look)
            state = eqx.tree_at(lambda s: s.looks, state, looks)

        # Written so that a loss of NaN is no improvement.
        if not loss < float(state.best_loss):
            return state
        best_loss = jnp.array(loss, jnp.float32)
        best_step = jnp.array(step, jnp.int32)
        after: WatchedState = eqx.tree_at(
            lambda s: (s.best, s.best_loss, s.best_step),
            state,
            (state.average, best_loss, best_step),
        )
        return after
