"""The list of measures that need no model of their own, each with what a reader must know."""

from collections.abc import Callable
from dataclasses import dataclass

from siloweave.evaluate import distances, quoted, similarity
from siloweave.evaluate.scores import Better
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key

__all__ = ["MEASURES", "Measure"]

SILOFUSE = "SiloFuse, ICDE 2024"
DP_TLDM = "DP-TLDM, 2024"
OF_100 = "of 100"


@dataclass(frozen=True)
class Measure:
    """One measure: what it is called, how it is computed and how it is read.

    Attributes:
        compute: From the tables, the names of the real and the synthetic one, and a key.
        note: From the tables and both names, where there is something to say.
        most: The largest possible value; infinite where there is none.
        spread: Whether it is quick enough to be computed again without a tenth of the rows.
    """

    name: str
    family: str
    compute: Callable[[Aligned, str, str, Key], float]
    better: Better
    unit: str
    source: str
    most: float
    note: Callable[[Aligned, str, str], str] = lambda tables, real, synthetic: ""
    spread: bool = True


def _part(name: str, compute: Callable[[Aligned, str, str], float], source: str) -> Measure:
    return Measure(
        name, "resemblance", lambda t, a, b, key: 100 * compute(t, a, b), "higher", OF_100, source,
        100.0,
    )  # fmt: skip


def _tvd(ways: int) -> Measure:
    return Measure(
        f"{ways}-way TVD", "marginals", lambda t, a, b, key: distances.marginal_tvd(
            t, a, b, ways, key=key
        ), "lower", "0 to 1", "VertiMRF, 2024", 1.0, spread=False,
    )  # fmt: skip


def _workload(reading: str) -> Measure:
    def compute(tables: Aligned, real: str, synthetic: str, key: Key) -> float:
        found = distances.marginal_error(tables, real, synthetic, key=key)
        return found.closure if reading == "closure" else found.queries

    return Measure(
        f"workload error ({reading})", "marginals", compute, "lower", "0 to 2", "FLAIM, KDD 2024",
        2.0, spread=False,
    )  # fmt: skip


def _trends(name: str, strong: bool) -> Measure:
    def compute(tables: Aligned, real: str, synthetic: str, key: Key) -> float:
        return quoted.column_pair_trends(tables, real, synthetic, strong=strong).percent

    def note(tables: Aligned, real: str, synthetic: str) -> str:
        found = quoted.column_pair_trends(tables, real, synthetic, strong=strong)
        which = " that go together strongly in the real table" if strong else ""
        return f"over {found.pairs} pairs of columns{which}"

    return Measure(
        name, "quoted percentages", compute, "higher", "%", "SDMetrics 0.32, 2026", 100.0, note
    )


def _unscaled(tables: Aligned, real: str, synthetic: str) -> str:
    left_out = distances.average_wasserstein(tables, real, synthetic).left_out
    return f"without columns of one real value: {', '.join(left_out)}" if left_out else ""


def _without_categories(tables: Aligned, real: str, synthetic: str) -> str:
    return "over numeric columns only; categories have no order" if tables.categorical else ""


# In the order in which they are shown.
MEASURES = (
    _part("column similarity", similarity.column_similarity, f"{SILOFUSE}; {DP_TLDM}"),
    _part("correlation similarity", similarity.correlation_similarity, f"{SILOFUSE}; {DP_TLDM}"),
    _part("statistical similarity", similarity.statistical_similarity, DP_TLDM),
    _part(
        "Jensen-Shannon similarity",
        similarity.jensen_shannon_similarity,
        f"{SILOFUSE}; {DP_TLDM}",
    ),
    Measure(
        "Kolmogorov-Smirnov similarity",
        "resemblance",
        lambda t, a, b, key: 100 * similarity.kolmogorov_smirnov_similarity(t, a, b),
        "higher",
        OF_100,
        f"{SILOFUSE}; {DP_TLDM}",
        100.0,
        _without_categories,
    ),
    Measure(
        "average JSD",
        "distances",
        lambda t, a, b, key: distances.average_jsd(t, a, b),
        "lower",
        "0 to 1",
        "Fed-TGAN, 2021",
        1.0,
        lambda t, a, b: "over categorical columns",
    ),
    Measure(
        "average Wasserstein distance",
        "distances",
        lambda t, a, b, key: distances.average_wasserstein(t, a, b).mean,
        "lower",
        "real range",
        "Fed-TGAN, 2021",
        float("inf"),
        _unscaled,
    ),
    *map(_tvd, (3, 4, 5)),
    *map(_workload, ("closure", "queries")),
    Measure(
        "column shapes",
        "quoted percentages",
        lambda t, a, b, key: quoted.column_shapes(t, a, b),
        "higher",
        "%",
        "SDMetrics 0.32, 2026",
        100.0,
    ),
    _trends("column pair trends", strong=True),
    _trends("column pair trends (all pairs)", strong=False),
)
