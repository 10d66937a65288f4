"""AIM and FLAIM whole, on three small columns, and what their transcripts must look like.

`twins(study)` runs an algorithm on a roster, then on a neighbouring one with the mechanisms'
answers of the first run (see replay.py), and keeps every frame that crossed the wire of both.
`Twins.check` is the whole guarantee, without any sampling:

* every mechanism ran right after its charge, at the noise that was charged;
* inputs moved no further than declared, and each party's ledger covers what they really cost,
  where a share of a masked sum counts for what is left without the tolerated shares;
* the parties that hold the same rows on both sides give the same inputs;
* with the same answers, both runs say the same, byte for byte: nothing else that depends on rows
  steers the course, and nothing but what was paid for is on the wire.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pytest

from siloweave.federation import masking, messages
from siloweave.federation.messages import Envelope, Masked, Public, Relayed, Released, reply_type
from siloweave.federation.session import Session
from siloweave.federation.site import MemoryStore, Site
from siloweave.methods.aim import party as aim_party
from siloweave.methods.aim.coordinator import aim
from siloweave.methods.aim.method import AIM
from siloweave.methods.flaim import party as flaim_party
from siloweave.methods.flaim.coordinator import flaim
from siloweave.methods.flaim.method import FLAIM
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, rho_for
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
    UnitThresholdGaussian,
    UnitUpperBound,
    UpperBound,
)
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols.workloads import StudyWorkload
from siloweave.tables import Codes
from siloweave.tables.codes import Domain
from tests.federation.rosters import site_with, terms_of
from tests.federation.sites import Sites
from tests.federation.small import reply_in
from tests.guarantees.replay import Call, Tape, record, replay

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
WORKLOAD = [("a", "b"), ("b", "c")]
BUDGET = Budget(epsilon=4.0, delta=1e-5)
Roster = Mapping[str, Codes]
OwnNoise = Gaussian | ThresholdGaussian | UnitThresholdGaussian | UpperBound | UnitUpperBound
MaskedSum = SharedGaussian | SampledSharedGaussian


def codes(rows, domain=DOMAIN):
    """Rows as tuples, to codes."""
    table = np.array(rows, dtype=np.uint8).reshape(-1, len(domain.names))
    return Codes(domain, tuple(table.T))


def random_rows(rng, number, domain=DOMAIN):
    return [tuple(int(rng.integers(n)) for n in domain.sizes) for _ in range(number)]


def budget_of(relation, epsilon=BUDGET.epsilon):
    return Budget(epsilon=epsilon, delta=BUDGET.delta, relation=relation)


def neighbour(rng, rows, relation):
    """One row more, one row less, or another row."""
    (new,) = random_rows(rng, 1)
    if relation is Relation.REPLACE_ONE:
        others = [new] if new != rows[0] else [tuple((v + 1) % 2 for v in new)]
        return others + rows[1:]
    return rows[1:] if rows and rng.random() < 0.3 else [*rows, new]


# Runs


class Wire:
    """A transport that keeps requests and replies."""

    sizes = {}

    def __init__(self, inner):
        self.inner, self.frames = inner, []

    def send(self, name, frame):
        answer = self.inner.send(name, frame)
        self.frames.append((name, frame, answer))
        return answer


@dataclass
class Run:
    """One run: its wire, its sites and what came out."""

    wire: Wire
    sites: dict[str, Site]
    handlers: Any
    model: Any = None
    rounds: list = field(default_factory=list)

    def ledger(self, name):
        return self.sites[name].ledger

    def said(self):
        """Everything on the wire, decoded; without hashes and seals, which are fresh each time."""
        return [
            (name, request, [plain(getattr(reply, f)) for f in reply.__struct_fields__])
            for name, request, reply in self.messages()
        ]

    def messages(self):
        for name, frame, answer in self.wire.frames:
            request = messages.decode_request(messages.decode(frame, Envelope).body, self.handlers)
            yield name, request, reply_in(answer, reply_type(type(request)))


def plain(value):
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Public):
        return value.value, value.why
    if isinstance(value, Released):
        return value.value
    if isinstance(value, Relayed):  # encrypted to others: its length and who they are show
        return len(value.data), {name: len(key) for name, key in value.keys.items()}
    assert isinstance(value, Masked), f"{value!r} left a party unsealed"
    return value.words


def run_of(
    roster, handlers, *, budget=BUDGET, seed=0, entropy=None, run="r", tolerated=1, facts=None
):
    """Sites over a recording wire; masks come from the seed, so that twins have the same."""
    sites, terms = {}, terms_of(roster, tolerated=tolerated, facts=facts)
    for k, (name, rows) in enumerate(roster.items()):
        store = MemoryStore()
        store.put(f"secret/{run}", bytes([seed % 256, k % 256, 1]) + bytes(29))
        own = SeededEntropy(f"{seed}/{k}".encode()) if entropy is None else entropy(k)
        sites[name] = site_with(name, rows, terms, limit=budget, entropy=own, store=store)
    return Run(Wire(Sites(sites, handlers)), sites, handlers)


def facts_of(study):
    """What the parties of a study are given of its settings."""
    heaviest = getattr(study, "heaviest", 0)
    workload = StudyWorkload(study.workload, study.settings.max_model_mb, heaviest)
    return {**asdict(study.settings), "workload": workload}


@dataclass(frozen=True)
class AIMStudy:
    """AIM over a roster of one."""

    settings: AIM = AIM(rounds_per_column=1, sweeps=2, final_sweeps=2)  # noqa: RUF009
    budget: Budget = BUDGET
    handlers: Any = None
    workload: Any = tuple(WORKLOAD)
    heaviest: int = 0

    def __call__(self, roster: Roster, seed: int = 0) -> Run:
        run = run_of(
            roster, self.handlers or aim_party.HANDLERS, budget=self.budget, seed=seed,
            facts=facts_of(self),
        )  # fmt: skip
        domain = next(iter(roster.values())).domain
        unit = marginal_sensitivity(self.budget.neighbours, norm="l2")
        parties = Session(tuple(roster), run.wire, run="r")
        rho = rho_for(self.budget)
        run.model, run.rounds = aim(
            parties, domain, list(self.workload), rho, self.settings, unit=unit
        )
        return run


@dataclass(frozen=True)
class FLAIMStudy:
    """FLAIM over a roster."""

    settings: FLAIM
    budget: Budget = BUDGET
    handlers: Any = None
    key: int = 0
    workload: Any = tuple(WORKLOAD)
    entropy: Callable[[int], Any] | None = None

    def __call__(self, roster: Roster, seed: int = 0) -> Run:
        budget = None if self.settings.variant == "oracle" else self.budget
        run = run_of(
            roster, self.handlers or flaim_party.HANDLERS, budget=budget, seed=seed,
            entropy=self.entropy, tolerated=self.settings.tolerated, facts=facts_of(self),
        )  # fmt: skip
        domain = next(iter(roster.values())).domain
        unit = marginal_sensitivity(self.budget.neighbours, norm="l2")
        run.model, run.rounds = flaim(
            Session(tuple(roster), run.wire, run="r"), domain, list(self.workload),
            rho_for(self.budget), self.settings, key=self.key, unit=unit,
        )  # fmt: skip
        return run


# Checks


@dataclass(frozen=True)
class Paid:
    """A mechanism and the charge before it."""

    owner: str
    event: Any
    step: str
    call: Call


def paid_calls(tape: Tape) -> list[Paid]:
    """Every mechanism with its own charge; fails if one has none, or another's noise."""
    found, charge = [], None
    seen: set[tuple[str, str, str]] = set()
    for call in tape.calls:
        if call.name == "charge":
            charge = call
            continue
        assert charge is not None, f"{call.name} was called without a charge of its own"
        event = charge.settings["event"]
        _same_noise(event, call)
        owner, step = charge.settings["owner"], charge.settings["step"]
        once = (owner, charge.settings["run"], step)
        assert once not in seen, f"{owner} drew twice for what it paid in step {step}"
        seen.add(once)
        found.append(Paid(owner, event, step, call))
        charge = None
    return found


def _same_noise(event: Any, call: Call) -> None:
    if call.name == "exponential":
        assert isinstance(event, Exponential), f"a choice was charged as {event}"
        drawn, charged = call.settings["epsilon"], event.epsilon
    else:
        assert isinstance(event, OwnNoise | MaskedSum), f"noise was charged as {event}"
        drawn = call.settings["sigma"]
        charged = event.share_sigma if isinstance(event, MaskedSum) else event.sigma
    assert drawn == charged, f"{call.name} ran at {drawn}, and {charged} was charged"


def real_cost(paid: Paid, moved: np.ndarray) -> float:
    """The zCDP of one call at the distance by which its input moved, colluders' shares gone."""
    if isinstance(paid.event, Exponential):
        spread = float(moved.max(initial=0.0) - moved.min(initial=0.0))
        factor = paid.event.epsilon / (2 * paid.call.settings["sensitivity"])
        return (factor * spread) ** 2 / 8
    sigma = paid.call.settings["sigma"]
    left = 1
    if isinstance(paid.event, MaskedSum):
        left = paid.event.shares - paid.event.tolerated
    return float((moved.astype(np.float64) ** 2).sum()) / (2 * left * sigma**2)


@dataclass
class Twins:
    """The same run on two neighbouring rosters."""

    first: Run
    second: Run
    tape: Tape
    twin: Tape
    budget: Budget
    changed: str

    def costs(self) -> dict[str, float]:
        """What this pair of neighbours really cost, per party."""
        spent = dict.fromkeys(self.first.sites, 0.0)
        for paid, (call, moved) in zip(paid_calls(self.tape), self.twin.moved, strict=True):
            assert call is paid.call
            if paid.owner == self.changed:
                spent[paid.owner] += real_cost(paid, moved)
            else:
                assert not np.any(moved != 0), f"{paid.owner} has the same rows, and other inputs"
        return spent

    def check(self) -> None:
        """Fail unless the guarantee holds for these neighbours."""
        self.twin.require(l2=self._declared_l2())
        for name, spent in self.costs().items():
            ledger = self.first.ledger(name)
            assert spent <= ledger.rho * (1 + 1e-9), f"{name}: {spent} is above {ledger.rho}"
            assert ledger.epsilon() <= self.budget.epsilon
        for name in self.first.sites:
            assert self.first.ledger(name).events == self.second.ledger(name).events
        _each_within_its_event(self)
        assert self.first.said() == self.second.said(), "something unpaid depends on the rows"

    def _declared_l2(self) -> float:
        declared = [
            p.event.sensitivity * (2 if getattr(p.event, "replace_one", False) else 1)
            for p in paid_calls(self.tape)
            if isinstance(p.event, Gaussian | MaskedSum)
        ]
        return max(declared, default=0.0)


def _each_within_its_event(pair: Twins) -> None:
    for paid, (_, moved) in zip(paid_calls(pair.tape), pair.twin.moved, strict=True):
        cost, price = real_cost(paid, moved), paid.event.rho
        assert cost <= price * (1 + 1e-9), f"{paid.event} was charged for {cost} zCDP"


def twins(study, roster: Roster, other: Roster, *, seed: int = 0) -> Twins:
    """Run `study` on a roster, and again on one in which one party holds a neighbour."""
    (changed,) = (n for n in roster if roster[n] is not other[n])
    runs: list[Run] = []
    tape = record(lambda: runs.append(study(roster, seed)))
    twin = replay(tape, lambda: runs.append(study(other, seed)))
    return Twins(runs[0], runs[1], tape, twin, study.budget, changed)


def rosters(rng, relation, *, parties=3, most=6):
    """Random rows at every party, and a neighbour of the first party's."""
    least = 1 if relation is Relation.REPLACE_ONE else 0
    held = [random_rows(rng, int(rng.integers(least, most))) for _ in range(parties)]
    roster = {f"p{k}": codes(rows) for k, rows in enumerate(held)}
    return roster, {**roster, "p0": codes(neighbour(rng, held[0], relation))}


# What goes over the wire


@dataclass(frozen=True)
class Sum:
    """One masked sum as the coordinator saw it, and what only a test can know about it."""

    request: Any
    noisy: np.ndarray  # what the coordinator unmasked
    exact: np.ndarray
    shares: np.ndarray  # every party's noise, one row each
    event: SharedGaussian

    @property
    def noise(self) -> np.ndarray:
        return self.noisy - self.exact


def sums_of(run: Run, tape: Tape) -> list[Sum]:
    """Every masked sum of a run."""
    noise: dict[tuple[str, str], Paid] = {}
    for paid in paid_calls(tape):
        if isinstance(paid.event, MaskedSum):
            noise[paid.owner, paid.step] = paid
    groups: dict[int, list] = {}
    for name, frame, answer in run.wire.frames:
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, run.handlers)
        if hasattr(request, "share_sigma"):
            reply = reply_in(answer, reply_type(type(request)))
            groups.setdefault(envelope.step, []).append((name, request, reply))
    found = []
    for step, group in groups.items():
        words = [np.asarray(reply.sums.words.numpy(), np.uint32) for _, _, reply in group]
        mine = [noise[name, f"{step}.1"] for name, _, _ in group]
        values = [np.asarray(p.call.values, np.int64) for p in mine]
        shares = [
            np.asarray(p.call.answer, np.int64) - v for p, v in zip(mine, values, strict=True)
        ]
        noisy = masking.unmask_sum(words)
        exact = np.sum(values, axis=0)
        found.append(Sum(group[0][1], noisy, exact, np.array(shares), mine[0].event))
    return found


def words_of(run: Run) -> dict[str, list[np.ndarray]]:
    """Masked words per party, of sums over more than one party."""
    found: dict[str, list[np.ndarray]] = {}
    for name, request, reply in run.messages():
        if hasattr(request, "share_sigma") and len(request.keys) > 1:
            found.setdefault(name, []).append(np.asarray(reply.sums.words.numpy(), np.uint32))
    return found


def require_fresh_masks(run: Run, cells: int = 4) -> None:
    """Fail if words are small, or if two messages of a party differ by something small."""
    for name, sent in words_of(run).items():
        heads = [np.zeros(cells, np.uint32), *(m[:cells] for m in sent if m.size >= cells)]
        for i, a in enumerate(heads):
            for b in heads[:i]:
                for gap in (a - b, a + b):
                    small = np.abs(gap.astype(np.int32).astype(np.int64)) < 2**22
                    assert not small.all(), f"{name}: a mask is missing or was used twice"


def require_fresh_noise(tape: Tape, cells: int = 4, most: int = 12) -> None:
    """Fail if two draws of noise begin alike, up to their width, in as many as twelve cells."""
    draws = []
    for paid in paid_calls(tape):
        if paid.call.name == "add_gaussian" and paid.call.values.size >= cells:
            noise = (np.asarray(paid.call.answer) - paid.call.values).reshape(-1)[:most]
            sigma = paid.call.settings["sigma"]
            assert sigma >= 20, "too narrow to tell noise from noise"
            draws.append((noise / sigma, sigma))
    assert len(draws) > 2
    by_chance = 0.0
    for i, (a, s) in enumerate(draws):
        for b, t in draws[:i]:
            slack, both = 2 * (1 / s + 1 / t), min(a.size, b.size)
            assert (np.abs(a[:both] - b[:both]) >= slack).any(), "two releases have the same noise"
            by_chance += math.erf(slack / 2) ** both
    assert by_chance < 1e-4, "too few cells to tell noise from noise"


def claimed_sigma(event: SharedGaussian) -> float:
    return event.share_sigma * math.sqrt(event.shares - event.tolerated)


def dp_variants():
    """Every variant with a guarantee, and the settings that change its course."""
    base = {"participation": 0.7, "sweeps": 2, "final_sweeps": 1}
    cases = {
        "private": {"rounds": 3},
        "naive": {"variant": "naive", "rounds": 3},
        "random": {"variant": "random", "rounds": 3},
        "naive_bayes": {"variant": "naive_bayes", "rounds": 2},
        "private-cap": {"rounds": 3, "cap": 1},
        "private-cap-2": {"rounds": 3, "cap": 2, "tolerated": 2},
        "naive_bayes-cap": {"variant": "naive_bayes", "rounds": 3, "cap": 1},
        "private-local": {"rounds": 2, "local_steps": 2},
        "naive-local": {"variant": "naive", "rounds": 2, "local_steps": 2},
        "private-anneal": {"rounds": None},
        "naive-anneal": {"variant": "naive", "rounds": None, "participation": 1.0},
    }
    return [pytest.param(FLAIM(**base | case), id=name) for name, case in cases.items()]
