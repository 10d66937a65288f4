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


# Checkpoints


class Keeper:
    """Writes the state of a run every so many seconds, and reads the last one.

    A state is written to a file of its own; then `training.json`, which names it, is replaced in
    one move; then the state before is removed. Killed at any moment, one of the two is whole.
    Without a folder nothing is written.

    The folder holds what was learned from rows so far: it is as private as the rows.
    """

    def __init__(self, folder: Path | None, *, every: float) -> None:
        self.folder, self.every = folder, every
        self._facts: dict[str, Any] = {}
        self._latest: tuple[int, Any] | None = None
        self._written, self._at = -1, time.monotonic()

    def open(self, arrays: Any, *, run: dict[str, Any], data: Any) -> tuple[int, Any]:
        """The step and arrays to continue from; 0 and those of a fresh run without a checkpoint.

        Raises DataError where it is damaged, or of a run with other settings, keys or rows.
        """
        if self.folder is None:
            return 0, arrays
        leaves = [_plain(x) for x in jax.tree.leaves(arrays)]
        shapes = [f"{x.dtype}{list(x.shape)}" for x in leaves]
        self._facts = {
            "format": _FORMAT,
            **run,
            "data": _digest(data),
            "arrays": shapes,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _NAME
        if not path.exists():
            return 0, arrays
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            step, name = int(facts.pop("step")), str(facts.pop("file"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path} cannot be read as a checkpoint: {error}"
            ) from error
        for fact, value in self._facts.items():
            if facts.get(fact) != value:
                raise DataError(
                    f"{path} is the checkpoint of another run: its {fact} differs. Give every run "
                    "a folder of its own, or empty this one."
                )
        try:
            with safe_open(str(self.folder / name), framework="numpy") as file:
                read = [file.get_tensor(f"{i:05d}") for i in range(len(leaves))]
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise DataError(
                f"{self.folder / name} cannot be read as a checkpoint: {error}"
            ) from error
        self._written = step
        return step, _filled(arrays, read)

    def keep(self, step: int, arrays: Any) -> None:
        """Note the state after `step`, and write it if the last checkpoint is old."""
        if self.folder is None:
            return
        self._latest = (step, arrays)
        if time.monotonic() - self._at >= self.every:
            self.flush()

    def flush(self) -> None:
        """Write the state noted last, unless it is on disk."""
        if (
            self.folder is None
            or self._latest is None
            or self._latest[0] == self._written
        ):
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
    """Return an array as NumPy knows it; keys of jax as their numbers."""
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


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with naming_file(path), os.fdopen(descriptor, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# Batches


class BatchPlan(NamedTuple):
    """How batches are made."""

    name: str  # for the checkpoint, from which only a run with the same plan continues
    most: int  # steps of the longest stretch
    # (most, batch) rows from a step on
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
        return BatchPlan("own", most, lambda step, count: None, sampler)
    _check_finite(rows)
    count = _count(rows)
    if batch > count:
        raise InputError(
            f"train: batch = {batch} is more than the {count} rows there are. Use a batch of "
            f"at most {count}."
        )
    words = np.asarray(jax.random.key_data(key)).ravel()
    seeds = np.random.SeedSequence([int(word) for word in words])
    batches = count // batch  # in an epoch: one permutation, cut into whole batches

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Ints:
        return generator(fold_in(seeds, "epoch", epoch)).permutation(count)

    def picks(step: int, steps: int) -> NDArray[np.int32]:
        index = np.zeros((most, batch), np.int32)
        for i in range(steps):
            epoch, place = divmod(step + i, batches)
            index[i] = order(epoch)[place * batch : (place + 1) * batch]
        return index

    return BatchPlan("shuffled", most, picks)


def _check_finite(rows: Any) -> None:
    for leaf in jax.tree.leaves(rows):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not finite(leaf):
            wrong = ~np.isfinite(np.asarray(leaf))
            raise InputError(
                f"train: rows hold NaN or an infinity, first in row {np.argwhere(wrong)[0][0]}. "
                "Encode missing values, or leave such rows out."
            )


def _count(rows: Any) -> int:
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(rows)}
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
    """Whether all floats of a tree are finite; on the host, so nothing is compiled for it."""
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return all(bool(np.isfinite(np.asarray(x)).all()) for x in leaves)


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
        self.step, self.state, self.state_step = step, state, state_step


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
        state, note, is_over = self.between(eqx.combine(arrays, self.static), step)
        return eqx.filter(state, eqx.is_array), note, is_over


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
    """Run `steps` updates.

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
        arrays = jax.tree.map(
            lambda x: jax.lax.convert_element_type(x, x.dtype), arrays
        )
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
    """Return all stretches, each as long as one second of steps."""
    length, pace, compiled = 1, 0.0, False
    progress("compiling" if step < steps else "done", step / max(steps, 1))
    arrays, _, is_over = job.paused(arrays, step)
    while step < steps and not is_over:
        count = min(length, steps - step, job.plan.most)
        began = time.monotonic()
        # Arrays: a Python number would be compiled in.
        at = (jnp.int32(step), jnp.int32(count))
        after, found = _advance(
            job.update, job.static, job.plan.sampler, arrays, job.rows,
            job.plan.picks(step, count), at, job.key, job.plan.most,
        )  # fmt: skip
        losses = np.asarray(found)[:count]
        good = finite(after) and np.isfinite(losses).all()
        took = time.monotonic() - began
        if not good:
            raise _diverged(job, arrays, step, losses, keeper)
        step += count
        arrays, note, is_over = job.paused(after, step)
        keeper.keep(step, arrays)
        length = 2
        if compiled:  # the first stretch includes the compilation
            pace = took / count
            length = max(1, min(8 * count, int(_STRETCH / max(pace, 1e-9))))
        compiled = True
        left = (
            f", {duration((steps - step) * pace)} left" if pace and step < steps else ""
        )
        progress(
            f"step {step:,} of {steps:,}, loss {losses.mean():.4g}{note or left}",
            step / steps,
        )
    return arrays


@eqx.filter_jit
def _advance(
    update: Any, static: Any, sampler: Any, arrays: Any, rows: Any, picks: Any,
    at: tuple[Array, Array], key: Array, most: int,
) -> tuple[Any, Array]:  # fmt: skip
    """The compiled part: a loop of `count` <= `most` steps, of which only `most` is compiled in."""

    def body(i: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        arrays, losses = carry
        drawing, updating = jax.random.split(jax.random.fold_in(key, step + i))
        networks = eqx.combine(arrays, static)

        if picks is None:
            batch = sampler(rows, drawing)
        else:
            index = picks[i]
            batch = jax.tree.map(
                lambda x: x.at[index].get(mode="promise_in_bounds"), rows
            )
        state, loss = update(networks, batch, updating)
        return _same_shapes(state, arrays), losses.at[i].set(_number(loss))

    step, count = at
    carry = (arrays, jnp.zeros(most, jnp.float32))
    after, losses = jax.lax.fori_loop(0, count, body, carry)
    return after, losses


def _same_shapes(state: Any, arrays: Any) -> Any:
    fresh = eqx.filter(state, eqx.is_array)
    old, new = str(jax.tree.structure(arrays)), str(jax.tree.structure(fresh))
    if old != new:
        raise InputError(
            f"update: returned a state of structure {new} for one of {old}."
        )
    for a, b in zip(jax.tree.leaves(arrays), jax.tree.leaves(fresh), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise InputError(
                f"update: made an array of shape {a.shape} and type {a.dtype} into one of shape "
                f"{b.shape} and type {b.dtype}. A state must keep its shapes and types."
            )
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), fresh)


def _number(loss: Any) -> Array:
    value = jnp.asarray(loss, jnp.float32)
    if value.shape != ():
        raise InputError(
            f"update: the loss has shape {value.shape}; it must be one number."
        )
    return value


def _diverged(
    job: _Job, arrays: Any, step: int, losses: Any, keeper: Keeper
) -> TrainingError:
    bad = np.flatnonzero(~np.isfinite(losses))
    first = step + (int(bad[0]) if bad.size else len(losses) - 1) + 1
    what = (
        f"the loss is {losses[bad[0]]}"
        if bad.size
        else "the state holds NaN or infinities"
    )
    kept = f" and in {keeper.folder}" if keeper.folder is not None else ""
    return TrainingError(
        f"training diverged: {what} after step {first}. The state after step {step} is kept in the "
        f"error{kept}. Lower the learning rate, or look for extreme values among the rows.",
        step=first,
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
        if self.is_watched:
            return optax.adamw(1.0, weight_decay=self.settings.weight_decay)
        rate = optax.linear_schedule(
            self.settings.learning_rate, 0.0, self.settings.steps
        )
        return optax.adamw(rate, weight_decay=self.settings.weight_decay)

    @eqx.filter_jit  # one program, not one for each shape
    def start(self, net: Any) -> State:
        """Return the state before the first step."""
        moments = self.optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        if not self.is_watched:
            return State(net, net, moments, jnp.array(0))
        worst = jnp.array(np.finfo(np.float32).max)  # finite, as a state must be
        share = jnp.array(0.0, jnp.float32)
        looks = jnp.zeros((_MOST_LOOKS, len(Look._fields)))
        return WatchedState(
            net,
            net,
            moments,
            jnp.array(0),
            share,
            net,
            worst,
            jnp.array(0, jnp.int32),
            looks,
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
            self.start(net), self, rows, steps=self.settings.steps,
            batch=min(self.settings.batch, _count(rows)), key=key, progress=progress, store=store,
            between=between,
        )  # fmt: skip
        if held_back is None:
            return TrainedNetwork(state.average)
        assert isinstance(state, WatchedState)
        looks = [
            Look(int(step), seconds, loss)
            for step, seconds, loss in state.looks.tolist()
        ]
        return TrainedNetwork(state.best, tuple(look for look in looks if look.step))

    def __call__(self, state: State, batch: Any, key: Array) -> tuple[State, Array]:
        """Take one step; returns the loss too."""
        loss, gradient = eqx.filter_value_and_grad(self.mean)(state.net, batch, key)
        return self.moved(state, gradient), loss

    def moved(self, state: State, gradient: Any) -> State:
        """Return the state after a step along a gradient."""
        updates, moments = self.optimiser.update(gradient, state.moments, state.net)
        if isinstance(state, WatchedState):
            rate = self.settings.learning_rate * (1.0 - state.share)
            updates = jax.tree.map(lambda update: rate * update, updates)
        net = eqx.apply_updates(state.net, updates)
        average = averaged(state.average, net, self.settings.decay, state.step)
        if isinstance(state, WatchedState):
            return WatchedState(
                net, average, moments, state.step + 1,
                state.share, state.best, state.best_loss, state.best_step, state.looks,
            )  # fmt: skip
        return State(net, average, moments, state.step + 1)

    @eqx.filter_jit
    def loss_on(self, net: Any, rows: Any, key: Array) -> Array:
        """The mean loss of rows held back, each at sixteen times that are always the same."""
        keys = jax.random.split(key, _LOOKS)
        losses: Array = jax.lax.map(lambda key: self.mean(net, rows, key), keys)
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
    words = np.asarray(jax.random.key_data(key)).ravel()
    seeds = np.random.SeedSequence([int(word) for word in words])
    order = generator(fold_in(seeds, "held back")).permutation(count)
    learned = _taken(rows, np.sort(order[held_back:]))
    watched = _taken(rows, np.sort(order[:held_back]))
    return learned, watched


def _taken(rows: Any, places: Ints) -> Any:
    """Return rows at some places, of every array."""
    return jax.tree.map(lambda x: x[places], rows)


class TrainingWatch:
    """Ends a training by the clock, or where rows held back have not gained for long.

    Rows held back are looked at every twentieth of the training, or of the time that it may take.
    Training ends where the last two fifths of all steps brought nothing better, but not before a
    fifth of it is done.
    """

    def __init__(self, descent: Descent, held_back: Any, key: Array) -> None:
        self.descent, self.held_back = descent, held_back
        self.key = jax.random.fold_in(key, _WATCHING)
        minutes = descent.settings.minutes
        self.seconds = None if minutes is None else 60.0 * minutes
        self.watching_since = time.monotonic()
        self.began: float | None = None
        self.looked = 0.0

    def __call__(self, state: State, step: int) -> tuple[State, str, bool]:
        """Return the state with what was seen, words on it, and whether training is over."""
        assert isinstance(state, WatchedState)
        if not step:
            return state, "", False  # compiling, which comes next, is not timed
        if self.began is None:  # time that was spent before an interruption counts
            spent = float(state.share) * (self.seconds or 0.0)
            self.began, self.looked = time.monotonic() - spent, float(state.share)
        share = step / self.descent.settings.steps
        note = ""
        if self.seconds is not None:
            elapsed = time.monotonic() - self.began
            share = min(max(share, elapsed / self.seconds), 1.0)
            note = f", {duration(max(self.seconds - elapsed, 0.0))} left at most"
        now: WatchedState = eqx.tree_at(
            lambda s: s.share, state, jnp.array(share, jnp.float32)
        )
        if self.held_back is None:
            return now, note, share >= 1.0
        if share >= 1.0 or share - self.looked >= _LOOK_EVERY:
            self.looked = share
            now = self._looked(now, step)
        best_step = int(now.best_step)
        is_stuck = (
            best_step > 0 and step > _PATIENCE * best_step and share >= _LEAST_SHARE
        )
        if best_step:
            note = f", on rows held back {float(now.best_loss):.4g}{note}"
        return now, note, share >= 1.0 or is_stuck

    def _looked(self, state: WatchedState, step: int) -> WatchedState:
        loss = float(self.descent.loss_on(state.average, self.held_back, self.key))
        taken = int((state.looks[:, 0] > 0).sum())
        if taken < _MOST_LOOKS:
            seconds = time.monotonic() - self.watching_since
            looks = state.looks.at[taken].set(jnp.array([step, seconds, loss]))
            state = eqx.tree_at(lambda s: s.looks, state, looks)
        if not loss < float(state.best_loss):
            return state
        best = (state.average, jnp.array(loss, jnp.float32), jnp.array(step, jnp.int32))
        after: WatchedState = eqx.tree_at(
            lambda s: (s.best, s.best_loss, s.best_step), state, best
        )
        return after
