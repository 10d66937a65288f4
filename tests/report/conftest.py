"""A realistic record: four hospitals, sixty releases each, fifteen columns."""

import math
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from siloweave.report.record import (
    Association,
    BudgetTerms,
    LedgerRow,
    Marginal,
    MethodFacts,
    OwnerView,
    PartyCost,
    Phase,
    PublicView,
    Record,
    SchemaFact,
    Visibility,
)

CATEGORIES = {
    "workclass": "Private|Self-emp-not-inc|Local-gov|State-gov|Self-emp-inc|Federal-gov|"
    "Without-pay|Never-worked|(missing)",
    "education": "HS-grad|Some-college|Bachelors|Masters|Assoc-voc|11th|Assoc-acdm|10th|7th-8th|"
    "Prof-school|9th|12th|Doctorate|5th-6th|1st-4th|Preschool",
    "marital-status": "Married-civ-spouse|Never-married|Divorced|Separated|Widowed|"
    "Married-spouse-absent|Married-AF-spouse",
    "occupation": "Prof-specialty|Craft-repair|Exec-managerial|Adm-clerical|Sales|Other-service|"
    "Machine-op-inspct|Transport-moving|Handlers-cleaners|Farming-fishing|Tech-support|"
    "Protective-serv|Priv-house-serv|Armed-Forces",
    "relationship": "Husband|Not-in-family|Own-child|Unmarried|Wife|Other-relative",
    "race": "White|Black|Asian-Pac-Islander|Amer-Indian-Eskimo|Other",
    "sex": "Male|Female",
    "native-country": "|".join(["United-States", "Mexico", *(f"country {i}" for i in range(40))]),
    "income": "<=50K|>50K",
}
NUMBERS = {
    "age": (17, 90, "integer"),
    "fnlwgt": (12285, 1490400, "integer"),
    "education-num": (1, 16, "integer"),
    "capital-gain": (0, 99999, "integer"),
    "capital-loss": (0, 4356, "integer"),
    "hours-per-week": (1, 99, "integer"),
}
HOSPITALS = ("Northgate", "St. Elm", "Harbour Clinic", "Vale General")

METHOD = MethodFacts(
    name="AugFLAIM (Private)",
    family="graphical model",
    split="rows",
    trust="secure-sum",
    guarantee="dp",
    paper="Maddock, Cormode and Maple. FLAIM: AIM-based synthetic data generation in the "
    "federated setting. KDD 2024.",
    statement="Every row is protected from the coordinator, from the other parties and "
    "from any reader of the synthetic table. A party itself sees its own rows.",
)
SETTINGS = {
    "rounds": 22,
    "participation": 1.0,
    "local_steps": 1,
    "workload": "64 random 3-way marginals, seed 123",
    "bins": 32,
    "model size": "80 MB",
    "gaussian share": 0.9,
    "seed": 0,
    "columns": ["age", "income"],
    "stop": None,
}
VISIBILITY = (
    Visibility(
        who="Each party",
        sees="its own rows; the model after each round",
        protected_by="noise of all parties",
    ),
    Visibility(
        who="Coordinator",
        sees="sums of counts over all parties",
        protected_by="masks, and discrete Gaussian noise inside the sum",
    ),
    Visibility(
        who="Coordinator",
        sees="which marginal each party chose",
        protected_by="exponential mechanism",
    ),
    Visibility(
        who="Reader of the table",
        sees="synthetic rows, this page",
        protected_by="computed from noisy sums only",
    ),
)
PHASES = (
    Phase(name="read and encode", seconds=1.9),
    Phase(name="first marginals", seconds=3.4),
    Phase(name="22 rounds", seconds=41.2),
    Phase(name="final fit", seconds=9.6),
    Phase(name="sample 48,842 rows", seconds=0.7),
    Phase(name="report", seconds=0.4),
)


def marginals(rng, shift):
    """Skewed proportions; `shift` perturbs them so that two calls differ a little."""
    found = []
    for column, labels in CATEGORIES.items():
        names = tuple(labels.split("|"))
        weights = 0.62 ** np.arange(len(names)) * np.exp(shift * rng.normal(size=len(names)))
        found.append((column, "categorical", names, weights, False, "missing" in labels))
    for column, (low, high, kind) in NUMBERS.items():
        bins = 16 if column == "education-num" else 32
        edges = np.linspace(low, high, bins + 1)
        names = tuple(f"{a:,.0f} to {b:,.0f}" for a, b in pairwise(edges))
        centre = np.linspace(-1.4, 2.6, bins)
        weights = np.exp(-(centre**2)) * np.exp(shift * rng.normal(size=bins)) + 1e-4
        if column == "age":
            names, weights = (*names, "(missing)"), np.append(weights, 0.4)
        found.append((column, kind, names, weights, True, column == "age"))
    return tuple(
        Marginal(
            column=column,
            kind=kind,
            labels=names,
            proportions=tuple((weights / weights.sum()).tolist()),
            ordered=ordered,
            missing=missing,
        )
        for column, kind, names, weights, ordered, missing in found
    )


def association(names, rng, noise):
    width = len(names)
    base = np.random.default_rng(5).beta(0.7, 3.2, size=(width, width))
    values = np.clip(np.triu(base, 1) + noise * rng.normal(size=(width, width)), 0, 0.97)
    values = np.triu(values, 1) + np.triu(values, 1).T + np.eye(width)
    return Association(names=tuple(names), values=tuple(tuple(row) for row in values.tolist()))


def epsilon_of(rho, delta=1e-5):
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def ledger(party, columns, rounds, total=0.0206):
    """One size, fourteen first counts, then selections and measurements; exactly 60 releases."""
    steps = [("setup", "noisy row count", "discrete Gaussian", 0.02)]
    steps += [("round 0", f"counts of {c}", "discrete Gaussian", 0.012) for c in columns[:14]]
    number = 0
    while len(steps) < 60:
        number += 1
        pair = f"{columns[number % 15]} × {columns[(3 * number + 2) % 15]}"
        steps.append((f"round {number}", "which marginal to measure", "exponential", 0.01))
        if len(steps) < 60:
            steps.append((f"round {number}", f"counts of {pair}", "discrete Gaussian", 0.03))
    weight = sum(step[3] for step in steps)
    spent, rows = 0.0, []
    for index, (step, what, mechanism, share) in enumerate(steps, 1):
        rho = total * share / weight
        spent += rho
        if mechanism == "exponential":
            parameters = f"ε = {math.sqrt(8 * rho):.4f}, Δ = 2"
        else:
            parameters = f"σ = {math.sqrt(1 / (2 * rho)):.1f} in total, Δ₂ = 1"
        rows.append(
            LedgerRow(
                party=party,
                index=index,
                step=step,
                what=what,
                to="coordinator, as masked sum" if step != "setup" else "coordinator",
                mechanism=mechanism,
                parameters=parameters,
                rho=rho,
                cumulative_epsilon=epsilon_of(spent),
            )
        )
    return rows


def cost(name, number, epsilon):
    return PartyCost(
        name=name,
        rows_public=None,
        epsilon=epsilon,
        bytes_sent=412_000 + 61_000 * (number % 7),
        bytes_received=1_930_000 - 118_000 * (number % 5),
        messages=46 - number % 4,
        ledger_head=f"{number:02d}" + "9f3a6c" * 10,
    )


def owner_view(names, rng):
    return OwnerView(
        marginals=marginals(np.random.default_rng(12), 0.25),
        association=association(names, rng, 0.06),
        workload_errors={"closure (129 marginals)": 0.2214, "queries (64)": 0.3127},
        tvd={"1-way": 0.031, "2-way": 0.094, "3-way": 0.172},
        scores={"held-out NLL (nats per row)": 20.41, "AUC, trained on synthetic": 0.871},
    )


def facts(synthetic):
    return tuple(
        SchemaFact(
            column=m.column,
            kind=m.kind,
            facts="bounds" if m.ordered else "categories",
            how="paid" if m.column == "occupation" else "declared",
        )
        for m in synthetic
    )


def build(parties=HOSPITALS, *, private=True, owner=True, guarantee="dp", **changes):
    """The record; `changes` replace its fields."""
    rng = np.random.default_rng(11)
    synthetic = marginals(rng, 0.12)
    names = tuple(m.column for m in synthetic)
    ledgers, costs = [], []
    for number, name in enumerate(parties):
        rows = ledger(name, names, 22, total=0.0206 * (1 - 0.13 * (number % 4)))
        ledgers += rows
        costs.append(cost(name, number, rows[-1].cumulative_epsilon))
    fields = {
        "method": msgspec.structs.replace(METHOD, guarantee=guarantee),
        "settings": SETTINGS,
        "visibility": VISIBILITY,
        "phases": PHASES,
        "title": "Census income across four hospitals",
        "created": "2025-11-21T14:05:33+00:00",
        "siloweave_version": "0.1.0",
        "budget": BudgetTerms(
            epsilon=1.0, delta=1e-5, unit="row", relation="add or remove one row"
        ),
        "private": private,
        "not_private_reason": "" if private else "The noise was seeded for a test.",
        "epsilon_spent": max(cost.epsilon for cost in costs),
        "parties": tuple(costs),
        "ledgers": tuple(ledgers),
        "schema_facts": facts(synthetic),
        "assumed_public": ("The names of the columns.", "The number of parties, and who they are."),
        "warnings": ("Two parties may not collude with the coordinator in this study.",),
        "synthetic": PublicView(
            num_rows=48842,
            marginals=synthetic,
            association=association(names, rng, 0.0),
            cliques=tuple((names[i], names[(3 * i + 2) % 15]) for i in range(15) if i != 14),
        ),
        "owner": owner_view(names, rng) if owner else None,
    }
    return Record(**{**fields, **changes})


@pytest.fixture(scope="session")
def record():
    return build()


@pytest.fixture(scope="session")
def make():
    """`build`, for tests that change it."""
    return build
