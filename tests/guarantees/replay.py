"""Record what goes into every noise mechanism on one table, replay what came out on a neighbour.

The recipe ("record and replay"): run an algorithm on D and keep the inputs and outputs of every
mechanism; run it on a neighbour D' while the mechanisms answer as they did before. Then all that
may differ are the inputs, and each by no more than the sensitivity that was declared. That decides
without any sampling whether a sensitivity is right, whether the ledger depends on the data, and
whether anything private steers the course of the algorithm.

::

    tape = record(lambda: fit(table))
    twin = replay(tape, lambda: fit(neighbour))
    twin.require(l2=1.0, score=1.0)     # or: twin.require_paid(ledger.events)

It works for algorithms that call ``mechanisms.add_gaussian`` and so on through the module, and
that charge their releases to a ``Ledger``.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from siloweave.errors import SiloweaveError
from siloweave.privacy import mechanisms
from siloweave.privacy.events import Event
from siloweave.privacy.ledger import Ledger

NOISE = ("add_gaussian", "add_laplace")
OTHER = ("exponential", "randomised_response")


class DivergenceError(AssertionError):
    """Two runs on neighbours did something else than the same mechanisms at the same settings."""


@dataclass(frozen=True)
class Call:
    """One mechanism, or one charge, as it was called."""

    name: str
    settings: dict[str, Any]  # must be the same on neighbours
    values: np.ndarray | None = None  # may differ, within the sensitivity
    answer: Any = None


@dataclass
class Tape:
    """The calls of one run; a replayed one also has how far each input moved."""

    calls: list[Call] = field(default_factory=list)
    moved: list[tuple[Call, np.ndarray]] = field(default_factory=list)

    def distances(self, kind: str) -> list[float]:
        """How far inputs moved: "l1" and "l2" of the noise, "score" (largest) of selections."""
        measure = {
            "l1": lambda moved: float(np.abs(moved).sum()),
            "l2": lambda moved: float(np.sqrt((moved.astype(np.float64) ** 2).sum())),
            "score": lambda moved: float(np.abs(moved).max(initial=0.0)),
        }[kind]
        names = {"l1": ("add_laplace",), "l2": ("add_gaussian",), "score": ("exponential",)}[kind]
        return [measure(moved) for call, moved in self.moved if call.name in names]

    def require(self, **largest: float) -> None:
        """Fail if an input moved further than declared, for example ``require(l2=1.0)``."""
        for kind, bound in largest.items():
            worst = max(self.distances(kind), default=0.0)
            if worst > bound * (1 + 1e-9) + 1e-12:
                raise AssertionError(f"{kind} distance {worst} is above the declared {bound}")
        for call, moved in self.moved:
            if call.name == "exponential":
                declared = call.settings["sensitivity"]
                worst = float(np.abs(moved).max(initial=0.0))
                if worst > declared * (1 + 1e-9) + 1e-9:
                    raise AssertionError(f"a score moved by {worst}, declared was {declared}")

    def rho(self) -> float:
        """The zCDP that this pair of neighbours really costs, from how far inputs moved."""
        return math.fsum(_cost(call, moved) for call, moved in self.moved)

    def require_paid(self, events: Iterable[Event]) -> None:
        """Fail if this pair of neighbours costs more than ``events`` say."""
        paid = math.fsum(event.rho * event.count for event in events)
        spent = self.rho()
        if spent > paid * (1 + 1e-9):
            raise AssertionError(f"neighbours are {spent} zCDP apart, but only {paid} was charged")

    @property
    def charges(self) -> list[Call]:
        """What was charged to ledgers."""
        return [call for call in self.calls if call.name == "charge"]


def _cost(call: Call, moved: np.ndarray) -> float:
    """The zCDP of one call at the distance by which its input moved."""
    if call.name == "add_gaussian":
        return float((moved.astype(np.float64) ** 2).sum()) / (2 * call.settings["sigma"] ** 2)
    if call.name == "add_laplace":
        return (float(np.abs(moved).sum()) / call.settings["scale"]) ** 2 / 2
    if call.name == "randomised_response":
        return np.count_nonzero(moved) * call.settings["epsilon"] ** 2 / 2
    spread = float(moved.max(initial=0.0) - moved.min(initial=0.0))
    factor = call.settings["epsilon"] / (2 * call.settings["sensitivity"])
    return (factor * spread) ** 2 / 8


@contextmanager
def _patched(
    answer: Callable[[str, dict[str, Any], np.ndarray | None, Any], Any],
) -> Iterator[None]:
    """Send every mechanism and every charge through ``answer(name, settings, values, real)``."""
    kept: dict[str, Any] = {name: getattr(mechanisms, name) for name in (*NOISE, *OTHER)}
    charge = Ledger.charge

    def noise(name: str, width: str) -> Callable[..., Any]:
        def call(values: Any, size: float | None = None, *, entropy: Any, **named: float) -> Any:
            size = named[width] if size is None else size
            exact = np.asarray(values)
            settings = {width: float(size), "shape": exact.shape, "kind": exact.dtype.kind}
            return answer(name, settings, exact, lambda: kept[name](exact, size, entropy=entropy))

        return call

    def select(scores: Any, *, sensitivity: float, epsilon: float, entropy: Any) -> Any:
        exact = np.asarray(scores, dtype=np.float64)
        settings = {"sensitivity": sensitivity, "epsilon": epsilon, "shape": exact.shape}

        def real() -> int:
            return kept["exponential"](
                exact, sensitivity=sensitivity, epsilon=epsilon, entropy=entropy
            )

        return answer("exponential", settings, exact, real)

    def respond(values: Any, size: int, epsilon: float, *, entropy: Any) -> Any:
        exact, settings = np.asarray(values), {"size": size, "epsilon": epsilon}

        def real() -> Any:
            return kept["randomised_response"](exact, size, epsilon, entropy=entropy)

        return answer("randomised_response", settings | {"shape": exact.shape}, exact, real)

    def charged(self: Ledger, event: Event, **named: str) -> Any:
        settings = {"owner": self.owner, "event": event, **named}
        settings.pop("what")
        entry = charge(self, event, **named)
        answer("charge", settings, None, lambda: entry)
        return entry

    try:
        mechanisms.add_gaussian = noise("add_gaussian", "sigma")
        mechanisms.add_laplace = noise("add_laplace", "scale")
        mechanisms.exponential = select
        mechanisms.randomised_response = respond
        Ledger.charge = charged  # type: ignore[method-assign]
        yield
    finally:
        for name, function in kept.items():
            setattr(mechanisms, name, function)
        Ledger.charge = charge  # type: ignore[method-assign]


def record(run: Callable[[], Any]) -> Tape:
    """Run, and keep every call."""
    tape = Tape()

    def answer(name: str, settings: dict[str, Any], values: np.ndarray | None, real: Any) -> Any:
        result = real()
        kept = None if values is None else values.copy()
        tape.calls.append(Call(name, settings, kept, result))
        return result.copy() if isinstance(result, np.ndarray) else result

    with _patched(answer):
        run()
    return tape


def replay(tape: Tape, run: Callable[[], Any]) -> Tape:
    """Run on a neighbour, with the answers on ``tape``.

    Raises:
        DivergenceError: the run did not make the same calls with the same settings.
    """
    twin, left = Tape(), iter(tape.calls)
    failed: list[DivergenceError] = []  # a site makes an error of its own of what fails in it

    def diverged(text: str) -> DivergenceError:
        failed.append(DivergenceError(text))
        return failed[0]

    def answer(name: str, settings: dict[str, Any], values: np.ndarray | None, real: Any) -> Any:
        then = next(left, None)
        where = f"call {len(twin.calls)}"
        if then is None:
            raise diverged(f"{where}: {name} was not called on the recorded table")
        if (then.name, then.settings) != (name, settings):
            raise diverged(f"{where}: {then.name} {then.settings} became {name} {settings}")
        twin.calls.append(Call(name, settings, values, then.answer))
        if values is None or then.values is None:
            return then.answer
        if name == "exponential":
            twin.moved.append((then, values - then.values))
        else:
            twin.moved.append((then, values.astype(object) - then.values.astype(object)))
        return then.answer.copy() if isinstance(then.answer, np.ndarray) else then.answer

    try:
        with _patched(answer):
            run()
    except SiloweaveError:
        if not failed:
            raise
    if failed:
        raise failed[0]
    missing = next(left, None)
    if missing is not None:
        raise DivergenceError(f"{missing.name} was called on the recorded table only")
    return twin
