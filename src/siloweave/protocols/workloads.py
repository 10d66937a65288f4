"""What methods of marginals share: settings, workloads, bins, weights and the size of a model.

Weights and the bound on the model's size are those of McKenna, Mullins, Sheldon & Miklau 2022,
"AIM: An adaptive and iterative mechanism for differentially private synthetic data" (VLDB 15(11)).

**Guarantee**: nothing to protect. No function here reads a row; all are functions of the domain,
the workload, the noise level, the cliques measured so far and a number of rows that was paid for,
which the methods that call them assume public. Hence no neighbouring relation and no ledger entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from math import ceil, comb, inf, pi, sqrt
from typing import Any, ClassVar, Literal, TypeAlias

from siloweave.errors import CapacityError, InputError, number, whole
from siloweave.federation.expected import MOST_ROWS
from siloweave.models.junction_tree import cells_in, inside, many_tree_cells, tree_cells
from siloweave.statistics.marginals import closure, random_workload
from siloweave.tables.bins import value_count
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.schema import Schema, check_learnable

Workload: TypeAlias = Sequence[Sequence[str]] | Literal["auto"]
"""Sets of columns, or "auto", which chooses them by the method, the domain and the target."""

MOST_TRIPLES = 200_000
"""Triples that a table may have as candidates; of more a round would do little else than sort."""
MOST_FOURS = 40_000
"""Sets of four with the target that are candidates: those of 63 columns beside it. To compare all
of them with a model takes ten seconds."""
COARSE = 16
"""Equally wide bins of a column before it is cut; one with no more values has a bin for each."""
_FEWEST = 4  # bins that columns of numbers are cut into
_MOST = COARSE
# Times rows over noise: a column's bins squared, times the codes of another.
_NARROW = 4.0
_WIDE = 256  # triples that are candidates of a round
# With a target: sets of three, and of four, that are candidates in turn, or a part of all of them.
# Few noisy answers end a run of 60 columns after some 16 rounds.
_IN_TURN = 1024
_TURNS = 16
_WORKLOAD_SEED = 123
_NUMBERS = {2: "two", 3: "three", 4: "four"}  # of columns, the target among them


@dataclass(frozen=True)
class MarginalSettings:
    """The settings of every synthesizer that answers a workload of marginals.

    Attributes:
        degree: Columns in a query, instead of what "auto" chooses. A set that does not fit into
            `max_model_mb` is not asked.
        queries: So many random sets of `degree` columns instead of all. `degree=3, queries=64`
            is the published benchmark's setting.
        workload: Sets of columns whose joint distribution is to be right; each must fit. "auto" is
            every pair, and triples that contain the `target`. AIM also measures triples of columns
            with two codes each, and with a `target` sets of four such columns; TwoRound and its
            like measure triples that lower the expected error.
        target: A column that is to be predicted from the others.
        bins: Bins of a column of numbers, at most. None: as many as rows, budget and columns make
            useful (`bins_for`), and one for each value where there are at most twice
            as many values. Where columns are not cut: 16.
        counts_share: Share of the budget for a noisy histogram of columns of numbers that are in a
            query and have more values than bins, by which they are cut (histograms.py); 0 cuts
            them equally wide, and so does an `Encoder` instead of a schema.
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.

    Raises:
        InputError: One of these is no number, or out of bounds.
    """

    degree: int | None = None
    queries: int | None = None
    workload: Workload = "auto"
    target: str | None = None
    bins: int | None = None
    counts_share: float = 0.2
    max_model_mb: float = 80.0

    triples: ClassVar[bool] = False  # whether triples are candidates without a target
    # Columns of a relation with the target that is seen where no fewer columns show it.
    hidden_columns: ClassVar[int] = 2

    @property
    def chooses(self) -> bool:
        """Whether the method, the domain and the target choose the workload, and not the user."""
        return self.workload == "auto" and self.degree is self.queries is None

    def __post_init__(self) -> None:
        for name in ("degree", "bins", "queries"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        workload: Any = self.workload
        if workload is None or (isinstance(workload, str) and workload != "auto"):
            raise InputError(
                f'workload={workload!r} must be "auto" or a list of sets of columns, such as '
                '[("age", "income")]'
            )
        number("counts_share", self.counts_share, 0, 0.9)
        number("max_model_mb", self.max_model_mb, 0, inf, "()")


def first_encoder(schema: Schema, synth: MarginalSettings) -> Encoder:
    """Return an encoder with equally wide bins, as many as the settings say, or `COARSE`."""
    return Encoder(schema, synth.bins or COARSE)


def bins_for(schema: Schema, rows: float, rho: float) -> int:
    """Choose how many bins a column of many values is cut into, if the settings say no number.

    In b bins two columns lose about 1 / b of their dependence. A column has m codes on average, so
    a table of two has an L1 error of b m sigma / n from noise, where sigma = sqrt(d / (2 rho)) if d
    columns share the budget. The sum is least where b^2 m is in proportion to n / sigma. The
    factor, 4, was chosen on abalone, churn, heloc and adult (decision 0042).

    Args:
        schema: Columns.
        rows: How many there are, as it was paid for.
        rho: zCDP of the run, in units of a marginal's sensitivity.

    Example:
        >>> from siloweave.datasets import adult_schema
        >>> [bins_for(adult_schema(), rows, 0.03) for rows in (500, 50_000)]
        [5, 16]
    """
    sizes = [value_count(column) for column in schema.coded]
    most = _NARROW * max(rows, 1.0) * sqrt(2 * rho / len(sizes))
    fitting_bins: list[int] = []
    for bins in range(_FEWEST, _MOST + 1):
        codes = sum(min(bins, size) for size in sizes)
        if bins * bins * codes <= most * len(sizes):
            fitting_bins.append(bins)
    return max(fitting_bins, default=_FEWEST)


def most_bins(synth: MarginalSettings) -> int:
    """Return the most bins of a column: those of the settings, or one for each value."""
    return int(synth.bins or 2 * _MOST)


def workload_for(
    domain: Domain,
    degree: int | None,
    queries: int | None,
    workload: Workload,
    megabytes: float,
    *,
    target: str | None = None,
) -> list[Clique]:
    """Return the queries to answer: the named ones, or else all sets of `degree` columns.

    A query that was asked for must fit. Of all sets, those that do not fit are left out, and those
    with a column of one code, which says nothing of another. A column that is then in none is a
    query by itself: a default must not fail.

    Args:
        domain: Attributes and sizes.
        degree: Columns in a query; fewer where the table has fewer. None for all pairs, and after
            them triples with the `target`.
        queries: How many random sets, fewer where the table has fewer; all that fit if None.
        workload: Named queries, or "auto".
        megabytes: Bound on the model, at 8 bytes a cell.
        target: A column; triples that contain it are queries.

    Raises:
        SchemaError: A named query has a column that is not there, or one twice.
        CapacityError: A query does not fit.
    """
    cliques = _named_or_all(domain, degree or 2, queries, workload, megabytes)
    if workload == "auto" and degree is queries is None and target is not None:
        cliques += _triples_with(domain, target, megabytes)

    # Of all sets, what does not fit is left out already, but for single columns.
    is_default = workload == "auto" and queries is None
    checked = (
        [clique for clique in cliques if len(clique) == 1] if is_default else cliques
    )
    check_capacity(domain, checked, megabytes)
    return cliques


def queries_of(synth: MarginalSettings, encoder: Encoder) -> list[Clique]:
    """Return the queries that a method's settings stand for.

    Raises:
        InputError: There is no such target.
        SchemaError, CapacityError: Such codes cannot answer them.
    """
    check_learnable(encoder.schema)
    names = encoder.domain.names
    if synth.target is not None and synth.target not in names:
        raise InputError(
            f"target={synth.target!r} is no column of the model; choose from {', '.join(names)}"
        )
    return workload_for(
        encoder.domain,
        synth.degree,
        synth.queries,
        synth.workload,
        synth.max_model_mb,
        target=synth.target,
    )


def cheap_triples(synth: MarginalSettings, domain: Domain) -> list[Clique]:
    """Return triples that AIM may choose beside the queries, where it chooses its workload itself.

    They are those of columns with two codes each: a triple measures its three pairs with half the
    precision that one pair would have for the same budget; with more codes it is less. All triples
    of a table of 842 columns would be a hundred million, so none is made that is no candidate.

    Returns:
        In the order of the domain; none with a target, whose triples are queries, and none where
        there are more than 200,000.
    """
    names = _two_coded(synth, domain)
    return list(combinations(names, 3)) if comb(len(names), 3) <= MOST_TRIPLES else []


def fours_with_target(synth: MarginalSettings, domain: Domain) -> list[Clique]:
    """Return the sets of four columns with the target that AIM may choose beside the queries.

    A relation of three columns with the target, such as a parity, shows in no smaller set. As with
    `cheap_triples` each column has two codes. With more codes a set measures its pairs much worse
    than they would be by themselves, and trees learn the target less well (decision 0042).

    Returns:
        In the order of the domain; none where there are more than 40,000.
    """
    names = [name for name in domain.names if domain.size_of(name) == 2]
    is_open = synth.triples and synth.chooses and cells_in(synth.max_model_mb) >= 2**4
    if not is_open or synth.target not in names or comb(len(names) - 1, 3) > MOST_FOURS:
        return []
    return [four for four in combinations(names, 4) if synth.target in four]


def more_candidates(synth: MarginalSettings, domain: Domain) -> list[Clique]:
    """Return the sets that AIM may choose beside the queries, with a target or without."""
    if synth.target is not None:
        return fours_with_target(synth, domain)
    return cheap_triples(synth, domain)


def unseen_relations(synth: MarginalSettings, domain: Domain) -> Iterator[str]:
    """Yield a warning about relations with the target that no set of columns would show.

    Args:
        synth: Settings.
        domain: Columns, coded as they will be.

    Yields:
        Nothing without a target, where queries were named, or where the table has no more columns.
    """
    if synth.target is None or not synth.chooses:
        return
    visible = 4 if fours_with_target(synth, domain) else synth.hidden_columns
    if len(_varied(domain).names) <= visible:
        return
    larger = ""
    if synth.triples and max(domain.sizes) > 2:
        sizes = "three or four columns" if visible == 4 else "three columns"
        larger = f", nor one of {sizes} of which one has more than two codes"
    yield (
        f"a relation of more than {_NUMBERS[visible]} columns with {synth.target!r} could not be "
        f"seen{larger}, unless fewer of its columns show some of it; `workload` can name such sets"
    )


def refused_triples(synth: MarginalSettings, domain: Domain) -> int:
    """Count the triples that would be `cheap_triples` if they were not more than 200,000."""
    count = comb(len(_two_coded(synth, domain)), 3)
    return count if count > MOST_TRIPLES else 0


def _two_coded(synth: MarginalSettings, domain: Domain) -> list[str]:
    """Return the columns of two codes, whose triples may be candidates; none if none may be."""
    is_open = synth.triples and synth.chooses and synth.target is None
    if not is_open or cells_in(synth.max_model_mb) < 2**3:
        return []
    return [name for name in domain.names if domain.size_of(name) == 2]


def too_large(domain: Domain, degree: int, megabytes: float) -> int:
    """Count the sets of `degree` columns that do not fit, and so are in no default workload."""
    width = len(_varied(domain).names)
    return comb(width, min(degree, width)) - len(_sets(domain, degree, megabytes))


def without_costly_sets(
    domain: Domain, offered: Mapping[Clique, float]
) -> dict[Clique, float]:
    """Keep pairs, and of wider sets those of columns with two codes each; see `cheap_triples`.

    Args:
        domain: Attributes and sizes.
        offered: Candidates, and their weights.
    """
    cheap: dict[Clique, float] = {}
    for clique, weight in offered.items():
        if len(clique) < 3 or max(domain.shape(clique)) <= 2:
            cheap[clique] = weight
    return cheap


def shortlist(
    offered: Mapping[Clique, float],
    measured: Sequence[Clique],
    turn: int = 0,
    *,
    has_target: bool = False,
) -> dict[Clique, float]:
    """Choose the candidates of a round: of wide sets only some, so that a round stays short.

    Without a target these are 256 triples, of which most pairs lie in measured cliques, in the
    order of the candidates. With a target 1,024 more sets of each width take turns, or a sixteenth
    of them where that is more, since a parity shows in no pair.

    Args:
        offered: Candidates, and their weights.
        measured: What was measured before.
        turn: Number of the round, from 0.
        has_target: Whether sets take turns.
    """
    linked: set[Clique] = set()
    for clique in measured:
        linked.update(combinations(clique, 2))

    def links(clique: Clique) -> int:
        return sum(pair in linked for pair in combinations(clique, 2))

    chosen: set[Clique] = set()
    for width in (3, 4):
        sets = [clique for clique in offered if len(clique) == width]

        # The sets whose turn it is, around from the last one to the first.
        if has_target and sets:
            count = max(_IN_TURN, ceil(len(sets) / _TURNS))
            first = turn * count % len(sets)
            in_turn = [*sets[first:], *sets[:first]]
            chosen.update(in_turn[:count])
            sets = [clique for clique in sets if clique not in chosen]

        # And those with most pairs in measured cliques; ties stay in the order of the candidates.
        if linked and len(sets) > _WIDE:
            sets.sort(key=links, reverse=True)
        chosen.update(sets[:_WIDE])
    return {
        clique: weight
        for clique, weight in offered.items()
        if len(clique) < 3 or clique in chosen
    }


def _varied(domain: Domain) -> Domain:
    """Return the columns that have more than one code; all columns if none has."""
    varied = [name for name in domain.names if domain.size_of(name) > 1]
    return domain.project(varied or domain.names)


def _sets(domain: Domain, degree: int, megabytes: float) -> list[Clique]:
    """Return all sets of `degree` varied columns that fit, or of fewer in a narrow table."""
    return list(_known_sets(domain, degree, megabytes))


@lru_cache(maxsize=2)
def _known_sets(domain: Domain, degree: int, megabytes: float) -> tuple[Clique, ...]:
    """Compute `_sets` once for all who ask: wide tables have many."""
    names = _varied(domain).names
    most = cells_in(megabytes)
    sets = combinations(names, min(degree, len(names)))
    return tuple(clique for clique in sets if domain.size(clique) <= most)


def _triples_with(domain: Domain, target: str, megabytes: float) -> list[Clique]:
    """Return all triples of varied columns with the target that fit."""
    names = _varied(domain).names
    if len(names) < 3:
        return [clique for clique in _sets(domain, 3, megabytes) if target in clique]
    others = [name for name in names if name != target] if target in names else []

    def places(clique: Clique) -> tuple[int, ...]:
        return tuple(map(domain.position, clique))

    triples = [domain.canonical((target, *pair)) for pair in combinations(others, 2)]
    triples.sort(key=places)
    return [triple for triple in triples if domain.size(triple) <= cells_in(megabytes)]


def _named_or_all(
    domain: Domain,
    degree: int,
    queries: int | None,
    workload: Workload,
    megabytes: float,
) -> list[Clique]:
    """Return the queries that a workload names, or random ones, or all that fit."""
    if workload != "auto":
        try:
            return [domain.canonical(query) for query in workload]
        except InputError as error:
            raise type(error)(f"workload: {error}") from error
    varied = _varied(domain)
    degree = min(degree, len(varied.names))
    if queries is not None:
        count = min(queries, comb(len(varied.names), degree))
        return random_workload(varied, degree, count, seed=_WORKLOAD_SEED)

    # A column in no set is a query by itself, or nothing would be known of it.
    sets = _sets(domain, degree, megabytes)
    covered = set(chain.from_iterable(sets))
    return [*sets, *((name,) for name in domain.names if name not in covered)]


def expected_l1(sigma: float, cells: int) -> float:
    """Return the expected L1 norm of Gaussian noise of deviation `sigma` on `cells` numbers.

    At most `MOST_ROWS`: what is larger hides any table, and in the score of a choice it would be
    rounded by more than `ROUNDING` (secure_sums.py) allows for.
    """
    return min(sqrt(2.0 / pi) * sigma * cells, float(MOST_ROWS))


def weights_of(
    domain: Domain,
    workload: Sequence[Clique],
    heaviest: int = 0,
    candidates: Sequence[Clique] = (),
) -> dict[Clique, float]:
    """Compute the weight of every clique in the closure: w_r = sum over queries s of |r & s|.

    This is section 4.1 of AIM.

    Of a clique's columns only so many count, those in most queries: the `heaviest`, or all if 0.
    After the closure come `candidates`, cliques that are no queries.
    """
    if not workload:
        raise InputError("the workload is empty; name at least one set of columns")
    # The sum over queries, of the columns in both, is a sum over columns of the queries with each.
    times = Counter(chain.from_iterable(workload))
    weights: dict[Clique, float] = {}
    for clique in dict.fromkeys([*closure(workload, domain), *candidates]):
        column_times = sorted(times[name] for name in clique)
        # Of all, if heaviest is 0.
        weights[clique] = float(sum(column_times[-heaviest:]))
    return weights


@lru_cache(maxsize=4)
def known_weights(
    domain: Domain,
    workload: tuple[Clique, ...],
    heaviest: int = 0,
    candidates: tuple[Clique, ...] = (),
) -> Mapping[Clique, float]:
    """Compute `weights_of` once for all parties of one process."""
    return weights_of(domain, workload, heaviest, candidates)


def check_capacity(
    domain: Domain, workload: Sequence[Clique], megabytes: float
) -> None:
    """Raise CapacityError where a single query does not fit, with its columns and cells."""
    limit = cells_in(megabytes)
    for clique in workload:
        cells = domain.size(clique)
        if cells > limit:
            sizes = ", ".join(f"{name} ({domain.size_of(name)})" for name in clique)
            raise CapacityError(
                f"the query over {sizes} has {cells:,} cells, {8 * cells / 1e6:,.0f} MB; "
                f"the model may take {megabytes:g} MB. Use fewer bins for these columns, leave the "
                "query out of the workload, or raise max_model_mb"
            )


@lru_cache(maxsize=4)
def most_counted(
    domain: Domain, workload: tuple[Clique, ...], megabytes: float
) -> float:
    """Return the most cells that a question counts: those of the whole workload, or the model's."""
    workload_cells = sum(map(domain.size, known_weights(domain, workload)))
    return max(workload_cells, cells_in(megabytes))


@dataclass(frozen=True)
class StudyWorkload:
    """The workload of a study, by which its parties check what they are asked to count.

    Attributes:
        queries: The study's queries.
        megabytes: Bound on the model, at 8 bytes a cell.
        heaviest, candidates: As of `weights_of`.
    """

    queries: tuple[Clique, ...]
    megabytes: float
    heaviest: int = 0
    candidates: tuple[Clique, ...] = ()

    def weights(self, domain: Domain) -> Mapping[Clique, float]:
        """Return the weight of every set of columns that may be chosen."""
        return known_weights(domain, self.queries, self.heaviest, self.candidates)

    def most_cells(self, domain: Domain) -> int:
        """Return the most cells that one question counts."""
        return int(most_counted(domain, self.queries, self.megabytes))


def fits(domain: Domain, cliques: Sequence[Clique], megabytes: float) -> bool:
    """Return whether the junction tree of some cliques stays within `megabytes`."""
    return tree_cells(domain, cliques) <= cells_in(megabytes)


def fitting(
    domain: Domain,
    candidates: Collection[Clique],
    measured: Sequence[Clique],
    megabytes: float,
) -> list[Clique]:
    """Keep the candidates with which the junction tree stays within `megabytes`, or is the same."""
    limit = cells_in(megabytes)
    offered = list(candidates)

    # What lies inside the tree costs nothing; only for the others a tree is laid out.
    is_inside = inside(domain, measured, offered).tolist()
    free = {clique for clique, fact in zip(offered, is_inside, strict=True) if fact}
    outside = [clique for clique in offered if clique not in free]
    cells = many_tree_cells(domain, measured, outside).tolist()
    small = {
        clique for clique, size in zip(outside, cells, strict=True) if size <= limit
    }
    return [clique for clique in candidates if clique in free or clique in small]
