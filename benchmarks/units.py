"""A patient with a hundred rows, told from the released counts; and what bounding rows costs.

Run: ``python benchmarks/units.py audit`` fits with and without the patient, ``fidelity`` fits
Adult whose rows are grouped under ids, and ``page`` prints both tables, which
results_page.py writes. Each line of results/units.jsonl is one fit or one error; what is there is
not run again.

The audit's statistic is the number of rows that the model gives to the patient's cells, over all
pairs of columns: with Gaussian noise on counts nothing tells more. All her rows are alike and rare.
"""

import argparse
import json
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from scipy.stats import beta, rankdata

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.privacy.budget import Budget
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema

RESULTS = Path(__file__).parent / "results" / "units.jsonl"
COLUMNS = ["sex", "income", "race", "relationship"]
PATIENT, ROWS, OTHERS = "patient", 100, 2_000
DELTA = 1e-6
BOUND = 5


def people(seed: int = 0) -> pd.DataFrame:
    """Adults with two rows each on average, and one patient whose rows are rare and alike."""
    rng = np.random.default_rng(seed)
    frame = adult().to_native()[COLUMNS].astype(object).iloc[rng.permutation(48_842)[:OTHERS]]
    frame = frame.assign(who=[f"x{i}" for i in rng.integers(0, OTHERS // 2, OTHERS)])
    return frame.reset_index(drop=True)


def with_patient(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows and a hundred of the patient's, and what those hold: each column's rarest value."""
    rare = {name: frame[name].value_counts().index[-1] for name in COLUMNS}
    hers = pd.DataFrame([{**rare, "who": PATIENT}] * ROWS)
    return pd.concat([frame, hers], ignore_index=True), rare


def schema() -> Schema:
    """The columns, and whose row it is."""
    return Schema((*adult_schema().select(COLUMNS).columns, Column("who", "id"))).with_fallbacks()


def synthesizers() -> dict[str, sw.AIM | sw.TwoRound | sw.SecureTwoRound]:
    """What is audited."""
    return {
        "AIM": sw.AIM(rounds_per_column=2, sweeps=5, final_sweeps=20),
        "TwoRound": sw.TwoRound(final_sweeps=20),
        "SecureTwoRound": sw.SecureTwoRound(final_sweeps=20),
    }


def parts(name: str, frame: pd.DataFrame) -> object:
    """One table, a third of the people at each of three parties, or two columns at each of two."""
    if name == "AIM":
        return frame
    if name == "TwoRound":
        party = frame["who"].map(lambda who: 0 if who == PATIENT else int(who[1:]) % 3)
        return [frame[party == i].reset_index(drop=True) for i in range(3)]
    return {"north": frame[[*COLUMNS[:2], "who"]], "south": frame[[*COLUMNS[2:], "who"]]}


def budget_of(unit: str) -> Budget:
    """Epsilon 1 for a row, or for a person with five rows."""
    if unit == "row":
        return Budget(1.0, DELTA)
    return Budget(1.0, DELTA, unit="who", rows_per_unit=BOUND)


def statistic(fitted: sw.Fit, rare: dict[str, str]) -> float:
    """Rows of the model in the patient's cells, over all pairs of columns."""
    mrf, total = fitted.model.mrf, 0.0
    known = {c.name: c for c in fitted.schema.columns}
    for pair in combinations(COLUMNS, 2):
        table = mrf.marginal(mrf.domain.canonical(pair))
        cell = tuple(known[n].categories.index(rare[n]) for n in mrf.domain.canonical(pair))
        total += float(table[cell])
    return total


def audit(number: int, unit: str, only: str | None) -> None:
    """So many fits with the patient and as many without, in turn."""
    frame = people()
    both, rare = with_patient(frame)
    for name, synth in synthesizers().items():
        if only not in (None, name):
            continue
        done = [one for one in lines("audit") if (one["method"], one["unit"]) == (name, unit)]
        for i in range(len(done), 2 * number):
            start = time.perf_counter()
            data = parts(name, both if i % 2 else frame)
            fitted = synth.fit(data, schema(), budget=budget_of(unit), seed=i)
            record(
                kind="audit", method=name, unit=unit, patient=bool(i % 2),
                rows=statistic(fitted, rare), seconds=round(time.perf_counter() - start, 2),
            )  # fmt: skip


def fidelity(number: int) -> None:
    """Errors of pairs at the same epsilon: for a row, and for a person with five rows or two."""
    table = adult().to_native()[[*COLUMNS, "age", "education"]].astype(object)
    rng = np.random.default_rng(1)
    table = table.assign(age=table["age"].astype(int))
    table = table.assign(who=[f"x{i}" for i in rng.integers(0, 20_000, len(table))])
    facts = adult_schema().select([*COLUMNS, "age", "education"])
    whole = Schema((*facts.columns, Column("who", "id"))).with_fallbacks()
    for name, synth in (("AIM", sw.AIM()), ("TwoRound", sw.TwoRound())):
        data = [table] if name == "AIM" else [table.iloc[i::3] for i in range(3)]
        if name == "TwoRound":  # all rows of a person at one party
            party = table["who"].map(lambda who: int(who[1:]) % 3)
            data = [table[party == i].reset_index(drop=True) for i in range(3)]
        for rows in (0, 2, BOUND):
            budget = Budget(1.0, DELTA)
            if rows:
                budget = Budget(1.0, DELTA, unit="who", rows_per_unit=rows)
            done = [
                one for one in lines("fidelity") if (one["method"], one["bound"]) == (name, rows)
            ]
            for seed in range(len(done), number):
                fitted = synth.fit(data[0] if name == "AIM" else data, whole, budget=budget)
                made = fitted.sample(len(table), seed=seed).drop(columns="who")
                record(kind="fidelity", method=name, bound=rows,
                       error=error(table.drop(columns="who"), made))  # fmt: skip


def error(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """Mean total variation distance of pairs; ages in eight ranges."""
    cut = [0, 22, 28, 34, 40, 46, 53, 61, 200]
    both = [t.assign(age=pd.cut(t["age"].astype(int), cut).astype(str)) for t in (real, made)]
    gaps = []
    for pair in combinations(real.columns, 2):
        one, other = (t.groupby(list(pair)).size() / len(t) for t in both)
        gaps.append(float(one.sub(other, fill_value=0.0).abs().sum()) / 2)
    return float(np.mean(gaps))


def lines(kind: str) -> list[dict]:
    """What was run."""
    if not RESULTS.exists():
        return []
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return [one for one in found if one["kind"] == kind]


def record(**facts: object) -> None:
    """Add one line."""
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def auc(hits: np.ndarray, others: np.ndarray) -> float:
    """The chance with which a fit with the patient has more rows there than one without."""
    ranks = rankdata(np.concatenate([hits, others]))[: len(hits)]
    return float((ranks.sum() - len(hits) * (len(hits) + 1) / 2) / (len(hits) * len(others)))


def least_epsilon(hits: np.ndarray, others: np.ndarray) -> float:
    """A lower bound of epsilon at 95 %: one threshold, chosen on half of the fits."""
    every = np.sort(np.concatenate([hits[::2], others[::2]]))
    best = max(every, key=lambda t: (hits[::2] > t).mean() - (others[::2] > t).mean())
    seen = [int((fits[1::2] > best).sum()) for fits in (hits, others)]
    sizes = [len(fits[1::2]) for fits in (hits, others)]
    low = float(beta.ppf(0.025, seen[0], sizes[0] - seen[0] + 1)) if seen[0] else 0.0
    high = float(beta.ppf(0.975, seen[1] + 1, sizes[1] - seen[1]))
    return max(0.0, float(np.log(max(low - DELTA, 1e-12) / high)))


TEXT = """## A person with a hundred rows

`benchmarks/units.py audit` takes 2,000 rows of Adult (sex, income, race, relationship) grouped
under 1,000 ids, and a patient with 100 rows that are alike and rare. Fits are with and without her,
in turn, at ε = 1 and δ = 1e-6, with noise of the operating system. TwoRound has three parties with
different people, SecureTwoRound two with two columns each.

The statistic is the number of rows that the model gives to her cells, over all six pairs of
columns. At chance the AUC is .5; the most that this budget allows a Gaussian is .55, and with 200
fits each way the standard error is .03. With a row as the unit she is found in every fit.

Bounds of ε are Clopper–Pearson's at 95 %, at one threshold that was chosen on half of the fits, so
20 fits show less than there is.

{audit}

What it costs (`fidelity`): all rows of Adult, six columns, under 20,000 ids at random, so that an
id has 2.4 rows on average; fits at ε = 1, mean total variation distance of all pairs of columns
from all rows, ages in eight ranges.

{fidelity}
"""


def page() -> str:
    """The part of docs/reference/results/ with both tables."""
    heads = ("method", "unit", "fits each way", "rows without, with her", "AUC", "ε at least")
    rows = [heads, ("---",) * len(heads)]
    found = lines("audit")
    for name, unit in dict.fromkeys((one["method"], one["unit"]) for one in found):
        own = [one for one in found if (one["method"], one["unit"]) == (name, unit)]
        hits, others = (
            np.array([one["rows"] for one in own if one["patient"] is there])
            for there in (True, False)
        )
        size = min(len(hits), len(others))
        hits, others = hits[:size], others[:size]
        means = f"{others.mean():.0f} ± {others.std():.0f}, {hits.mean():.0f} ± {hits.std():.0f}"
        least = f"{least_epsilon(hits, others):.2f}"
        rows.append((name, words(unit), str(size), means, f"{auc(hits, others):.3f}", least))
    costs = [("method", "unit", "distance of pairs"), ("---",) * 3]
    found = lines("fidelity")
    for name, bound in dict.fromkeys((one["method"], one["bound"]) for one in found):
        errors = [one["error"] for one in found if (one["method"], one["bound"]) == (name, bound)]
        unit = f"a person with at most {bound} rows" if bound else "a row"
        costs.append((name, unit, f"{np.mean(errors):.4f} ± {np.std(errors):.4f}"))
    tables = ("\n".join(f"| {' | '.join(row)} |" for row in one) for one in (rows, costs))
    audited, fidelity_table = tables
    return TEXT.format(audit=audited, fidelity=fidelity_table)


def words(unit: str) -> str:
    """What is protected."""
    return "a row" if unit == "row" else f"a person with at most {BOUND} rows"


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("audit", "fidelity", "page"))
    parser.add_argument("--fits", type=int, default=200, help="each way, or of each kind")
    parser.add_argument("--unit", choices=("row", "person"), default="person")
    parser.add_argument("--method", help="one of AIM, TwoRound, SecureTwoRound; all if absent")
    asked = parser.parse_args()
    if asked.what == "audit":
        audit(asked.fits, asked.unit, asked.method)
    elif asked.what == "fidelity":
        fidelity(asked.fits)
    print(page())


if __name__ == "__main__":
    main()
