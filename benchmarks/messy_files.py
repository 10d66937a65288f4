"""Make the 56 files from benchmark tables and invented people.

    python benchmarks/messy_files.py FOLDER_OF_PARQUET_FILES

writes them anew into tests/tables/messy: `tuned/` was looked at while the detection was written,
`judge/` was written before and never tuned on. Each table has a JSON file with what a person would
declare.
"""

import csv
import gzip
import io
import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

HERE = Path(__file__).parent.parent / "tests" / "tables" / "messy"
ROWS = 240
FIRST = (  # noqa: SIM905  a list of words
    "Anna Ben Carla David Elif Fatou Georg Hana Ivan Julia Kofi Lea Mehmet Nina Omar "
    "Paula Quentin Rosa Sven Tara Uwe Vera Wanda Xenia Yann Zoe"
).split()
LAST = (  # noqa: SIM905  a list of words
    "Abel Baumann Costa Dubois Eriksen Fischer Garcia Huber Ito Jansen Keller Lopez Meier "
    "Novak Okafor Petrov Quinn Rossi Schmidt Tanaka Ullrich Vogel Weber Young Zimmer"
).split()
WORDS = (  # noqa: SIM905  a list of words
    "patient reports mild pain after the second visit no change since march asked to call "
    "back delivery was late box damaged but replaced happy with service would buy again "
    "left knee swollen new medication started on monday"
).split()


class Maker:
    """Draws columns; each is (texts, facts that a person would declare)."""

    def __init__(self, name, source):
        self.rng = np.random.default_rng(list(name.encode()))
        self.source = source

    def pick(self, values, p=None):
        return [values[i] for i in self.rng.choice(len(values), ROWS, p=p)]

    def table(self, name, columns, *, start=0):
        frame = pl.read_parquet(self.source / f"{name}.parquet")
        rows = np.sort(self.rng.choice(frame.height, ROWS, replace=False))
        return {c: frame[c][rows].to_list() for c in columns}

    def whole(self, low, high):
        return self.rng.integers(low, high, ROWS).tolist()

    def money(self, scale=800.0, digits=2):
        return [round(x, digits) for x in self.rng.lognormal(np.log(scale), 1.0, ROWS).tolist()]

    def dates(self, pattern, first="2019-01-01", days=1500, seconds=False, upto=31):
        start = datetime.fromisoformat(first)
        found: list[str] = []
        while len(found) < ROWS:
            when = start + timedelta(days=int(self.rng.integers(days)))
            if seconds:
                when += timedelta(seconds=int(self.rng.integers(86_400)))
            if when.day <= upto:
                found.append(when.strftime(pattern))
        return found

    def names(self):
        pairs = [f"{a} {b}" for a in FIRST for b in LAST]
        return [pairs[i] for i in self.rng.choice(len(pairs), ROWS, replace=False)]

    def notes(self):
        sizes = self.rng.integers(5, 14, ROWS)
        return [" ".join(self.rng.choice(WORDS, n)).capitalize() + "." for n in sizes]

    def unique(self, low, high):
        return (low + self.rng.choice(high - low, ROWS, replace=False)).tolist()

    def hexes(self, *sizes):
        def one():
            return "-".join("".join(self.rng.choice(list("0123456789abcdef"), n)) for n in sizes)

        return [one() for _ in range(ROWS)]

    def again(self, values, most=6):
        """Values of people with one row to some, in the order of the rows."""
        times = self.rng.integers(1, most + 1, ROWS)
        return [values[i] for i in np.repeat(np.arange(ROWS), times)[:ROWS] % len(values)]

    def gaps(self, values, text="", share=0.1):
        return [text if self.rng.random() < share else v for v in values]


def kind(name, **facts):
    return {"kind": name, **facts}


INTEGER, BOOLEAN, CATEGORICAL = kind("integer"), kind("boolean"), kind("categorical")
IDENTITY, TEXT = kind("id"), kind("text")


def real(decimals, form=None):
    return kind("continuous", decimals=decimals, **({"format": form} if form else {}))


def date(*patterns):
    return kind("datetime", format=patterns[0] if len(patterns) == 1 else list(patterns))


def text(form):
    return kind("text", format=form)


def gap(facts, *spellings):
    """The same column where some values are missing, "
    "spelled so (an empty field has no spelling)."""
    spelled = {"missing_values": sorted(spellings)} if spellings else {}
    return {**facts, "missing": True, **spelled}


def eu(value, digits=2, thousands=True):
    swapped = f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))
    return swapped if thousands else swapped.replace(".", "")


def filled(values, facts):
    """A column of a benchmark table, whose nulls are empty fields."""
    gone = any(v is None for v in values)
    return ["" if v is None else v for v in values], gap(facts) if gone else facts


# To build with


def b01_adult(m):
    t = m.table(
        "adult",
        [
            "age",
            "workclass",
            "fnlwgt",
            "education",
            "education-num",
            "sex",
            "capital-gain",
            "hours-per-week",
            "native-country",
            "income",
        ],
    )
    asked = {"workclass", "native-country"}
    facts = dict.fromkeys(t, INTEGER) | dict.fromkeys(
        ("workclass", "education", "sex", "native-country", "income"), CATEGORICAL
    )
    columns = {}
    for name, values in t.items():
        gone = any(v is None for v in values)
        spelled = gap(facts[name], "?") if gone and name in asked else facts[name]
        columns[name] = (["?" if v is None else v for v in values], spelled)
    return columns, {}


def b02_churn(m):
    t = m.table(
        "churn",
        [
            "RowNumber",
            "CustomerId",
            "Surname",
            "CreditScore",
            "Geography",
            "Gender",
            "Balance",
            "HasCrCard",
            "EstimatedSalary",
            "Exited",
        ],
    )
    facts = [
        IDENTITY,
        IDENTITY,
        text("name"),
        INTEGER,
        CATEGORICAL,
        CATEGORICAL,
        real(2),
        BOOLEAN,
        real(2),
        BOOLEAN,
    ]
    return {n: (v, f) for (n, v), f in zip(t.items(), facts, strict=True)}, {}


def b03_bank(m):
    t = m.table(
        "bank_marketing",
        [
            "age",
            "job",
            "marital",
            "default",
            "month",
            "duration",
            "cons.price.idx",
            "euribor3m",
            "y",
        ],
    )
    facts = [
        INTEGER,
        CATEGORICAL,
        CATEGORICAL,
        CATEGORICAL,
        CATEGORICAL,
        INTEGER,
        real(3),
        real(3),
        BOOLEAN,
    ]
    columns = {n: (v, f) for (n, v), f in zip(t.items(), facts, strict=True)}
    return columns, {"separator": ";"}


def b04_abalone(m):
    t = m.table("abalone", ["Sex", "Length", "Diameter", "Height", "Whole weight", "Rings"])
    facts = [CATEGORICAL, real(3), real(3), real(3), real(4), INTEGER]
    columns = {f"column_{i + 1}": (v, f) for i, (v, f) in enumerate(zip(t.values(), facts))}  # noqa: B905
    return columns, {"header": False}


def b05_hospital(m):
    ids = [f"P{n:07d}" for n in m.unique(100_000, 9_000_000)]
    return {
        "patient": (ids, kind("id", format="P[0-9]{7}")),
        "born": (m.dates("%d.%m.%Y", "1930-01-01", 25_000), date("%d.%m.%Y")),
        "sex": (m.pick("MF"), CATEGORICAL),
        "ward": (m.pick(["Chirurgie", "Innere", "Geriatrie", "Unfälle"]), CATEGORICAL),
        "weight": ([eu(x, 1) for x in m.rng.normal(75, 12, ROWS)], real(1, "1234,5")),
        "note": (m.notes(), TEXT),
        "icd": (m.pick(["I10", "E11", "J45", "M54", "F32", "I25", "K21"]), CATEGORICAL),
        "readmitted": (m.pick(["Y", "N"], [0.2, 0.8]), BOOLEAN),
    }, {"separator": ";", "encoding": "latin-1"}


def b06_times(m):
    fine = [
        f"{s}.{n:03d}"
        for s, n in zip(m.dates("%Y-%m-%dT%H:%M:%S", seconds=True), m.whole(0, 1000), strict=True)
    ]
    return {
        "day": (m.dates("%Y-%m-%d"), date("%Y-%m-%d")),
        "start": (m.dates("%Y-%m-%d %H:%M:%S", seconds=True), date("%Y-%m-%d %H:%M:%S")),
        "seen": (m.dates("%Y-%m-%dT%H:%M:%SZ", seconds=True), date("%Y-%m-%dT%H:%M:%SZ")),
        "logged": (fine, date("%Y-%m-%dT%H:%M:%S.%f")),
        "short": (m.dates("%Y-%m-%d %H:%M", seconds=True), date("%Y-%m-%d %H:%M")),
        "clock": (m.dates("%H:%M", seconds=True), date("%H:%M")),
        "count": (m.rng.poisson(4, ROWS).tolist(), INTEGER),
    }, {}


def b07_american(m):
    return {
        "OrderDate": (m.dates("%m/%d/%Y"), date("%m/%d/%Y")),
        "ShipDate": (m.dates("%m/%d/%Y", upto=12), date("%m/%d/%Y")),
        "Time": (m.dates("%I:%M %p", seconds=True), date("%I:%M %p")),
        "Total": ([f"${x:,.2f}" for x in m.money()], real(2, "$1,234.5")),
        "Discount": ([f"{n}%" for n in m.whole(0, 60)], kind("integer", format="1234%")),
        "State": (m.pick(["NY", "CA", "TX", "FL", "WA"]), CATEGORICAL),
        "Zip": ([f"{n:05d}" for n in m.unique(501, 99_000)], text("postcode")),
    }, {}


def b08_german(m):
    return {
        "Kunde": (m.unique(10_000, 99_999), IDENTITY),
        "Umsatz": ([f"{eu(x)} €" for x in m.money()], real(2, "1.234,5 €")),
        "Anteil": ([f"{eu(x, 1)} %" for x in m.rng.uniform(0, 100, ROWS)], real(1, "1234,5 %")),
        "Bestellt": (m.dates("%d.%m.%y"), date("%d.%m.%y")),
        "Stammkunde": (m.pick(["ja", "nein"]), BOOLEAN),
        "Menge": (
            [f"{n:,}".replace(",", ".") for n in m.whole(1, 90_000)],
            kind("integer", format="1.234"),
        ),
    }, {"separator": ";"}


def b09_codes(m):
    t = m.table(
        "diabetes", ["Pregnancies", "Glucose", "BMI", "DiabetesPedigreeFunction", "Outcome"]
    )
    facts = [INTEGER, INTEGER, real(1), real(3), BOOLEAN]
    columns = {n: (v, f) for (n, v), f in zip(t.items(), facts, strict=True)}
    columns["admission_type_id"] = (
        m.pick([1, 2, 3, 5, 6, 7], [0.5, 0.2, 0.15, 0.05, 0.08, 0.02]),
        CATEGORICAL,
    )
    columns["discharge"] = (
        m.pick([1, 3, 6, 11, 18, 25], [0.6, 0.15, 0.1, 0.05, 0.05, 0.05]),
        CATEGORICAL,
    )
    columns["sex"] = (m.pick([1, 2]), CATEGORICAL)
    return columns, {}


def b10_contacts(m):
    names = m.names()
    mails = [f"{n.lower().replace(' ', '.')}{m.rng.integers(99)}@example.org" for n in names]
    street = m.pick(["Main St", "Oak Avenue", "Hill Road", "Church Lane", "Elm Drive"])
    return {
        "name": (names, text("name")),
        "email": (mails, text("email")),
        "phone": (
            [f"+1 {m.rng.integers(200, 999)} 555 {n:04d}" for n in m.unique(0, 9999)],
            text("phone"),
        ),
        "address": ([f"{m.rng.integers(1, 999)} {s}" for s in street], text("address")),
        "city": (m.pick(["Springfield", "Riverton", "Salem", "Clinton"]), CATEGORICAL),
        "newsletter": (m.pick(["true", "false"]), BOOLEAN),
        "customer_since": (m.whole(1995, 2024), INTEGER),
    }, {}


def b11_log(m):
    ips = [".".join(str(n) for n in m.rng.integers(1, 255, 4)) for _ in range(ROWS)]
    paths = [
        f"https://example.org/items/{n}?page={m.rng.integers(1, 9)}" for n in m.unique(0, 9999)
    ]
    when = [f"{s}+02:00" for s in m.dates("%Y-%m-%dT%H:%M:%S", seconds=True)]
    return {
        "request_id": (m.hexes(8, 4, 4, 4, 12), text("uuid")),
        "client": (ips, text("ip")),
        "time": (when, date("%Y-%m-%dT%H:%M:%S%z")),
        "url": (paths, text("url")),
        "method": (m.pick(["GET", "POST", "PUT"], [0.8, 0.15, 0.05]), CATEGORICAL),
        "status": (m.pick([200, 301, 404, 500], [0.8, 0.1, 0.08, 0.02]), CATEGORICAL),
        "bytes": ([int(x) for x in m.money(5000)], INTEGER),
    }, {}


def b12_missing(m):
    return {
        "height": (
            m.gaps([f"{x:.1f}" for x in m.rng.normal(170, 9, ROWS)], "NA"),
            gap(real(1), "NA"),
        ),
        "visits": (m.gaps(m.rng.poisson(3, ROWS).tolist(), "n/a"), gap(INTEGER, "n/a")),
        "last_seen": (m.gaps(m.dates("%Y-%m-%d"), "-"), gap(date("%Y-%m-%d"), "-")),
        "smoker": (m.gaps(m.pick(["yes", "no"]), "?"), gap(BOOLEAN, "?")),
        "group": (m.gaps(m.pick(["A", "B", "AB", "0"]), "NULL"), gap(CATEGORICAL, "NULL")),
        "plain": (m.gaps(m.whole(0, 500)), gap(INTEGER)),
    }, {}


def b13_odd(m):
    return {
        "nr": (list(range(1, ROWS + 1)), IDENTITY),
        "country": (["Austria"] * ROWS, CATEGORICAL),
        "version": ([3] * ROWS, INTEGER),
        "remarks": ([""] * ROWS, gap(TEXT)),
        "score": ([f"{x:.2f}" for x in m.rng.uniform(0, 1, ROWS)], real(2)),
        "rhesus": (m.pick("+-"), CATEGORICAL),
    }, {}


def b14_heloc(m):
    names = [
        "RiskPerformance",
        "ExternalRiskEstimate",
        "MSinceOldestTradeOpen",
        "NumSatisfactoryTrades",
        "PercentTradesNeverDelq",
        "NumTotalTrades",
        "NetFractionRevolvingBurden",
    ]
    t = m.table("heloc", names)
    return {n: (v, CATEGORICAL if i == 0 else INTEGER) for i, (n, v) in enumerate(t.items())}, {}


def b15_nltcs(m):
    t = m.table("nltcs", ["eating", "dressing", "bathing", "cooking", "laundry", "telephoning"])
    return {n: (v, BOOLEAN) for n, v in t.items()}, {}


def b16_tabs(m):
    return {
        "código": ([f"A{n:04d}" for n in m.unique(0, 9999)], kind("id", format="A[0-9]{4}")),
        "región": (m.pick(["Cádiz", "Málaga", "Almería", "Jaén"]), CATEGORICAL),
        "activo": (m.pick(["sí", "no"]), BOOLEAN),
        "edad": (m.whole(18, 90), INTEGER),
        "importe": ([eu(x) for x in m.money(300)], real(2, "1.234,5")),
    }, {"separator": "\t", "encoding": "utf-16", "suffix": ".tsv"}


def b17_housing(m):
    t = m.table(
        "california_housing",
        [
            "longitude",
            "latitude",
            "housing_median_age",
            "total_bedrooms",
            "median_income",
            "ocean_proximity",
        ],
    )
    facts = [real(2), real(2), INTEGER, INTEGER, real(4), CATEGORICAL]
    columns = {n: filled(v, f) for (n, v), f in zip(t.items(), facts, strict=True)}
    return columns, {"suffix": ".csv.gz"}


def b18_lines(m):
    t = m.table("adult", ["age", "education", "sex", "hours-per-week"])
    facts = [INTEGER, CATEGORICAL, CATEGORICAL, INTEGER]
    columns = {n: (v, f) for (n, v), f in zip(t.items(), facts, strict=True)}
    columns["member"] = (m.pick([True, False]), BOOLEAN)
    columns["joined"] = (m.dates("%Y-%m-%d"), date("%Y-%m-%d"))
    columns["fee"] = (m.money(40.0), real(2))
    return columns, {"suffix": ".jsonl"}


def b19_quoted(m):
    return {
        "company": (
            [
                f"{a} {b}, Ltd"
                for a, b in zip(m.pick(LAST), m.pick(["North", "South", "Sea"]), strict=True)
            ],
            CATEGORICAL,
        ),
        "employees": ([f"{n:,}" for n in m.whole(1, 40_000)], kind("integer", format="1,234")),
        "profit": ([f"{x:,.1f}" for x in m.rng.normal(0, 9000, ROWS)], real(1, "1,234.5")),
        "founded": (m.dates("%d/%m/%Y", "1950-01-01", 25_000), date("%d/%m/%Y")),
        "listed": (m.pick(["T", "F"]), BOOLEAN),
    }, {"encoding": "utf-8-sig"}


def b20_orders(m):
    numbers = [f"INV-2024-{n:05d}" for n in m.unique(0, 99_999)]
    return {
        "invoice": (numbers, kind("id", format="INV-2024-[0-9]{5}")),
        "sku": (m.pick([f"SK{n}" for n in range(10, 30)]), CATEGORICAL),
        "quantity": ((1 + m.rng.geometric(0.4, ROWS)).tolist(), INTEGER),
        "unit_price": (m.money(20.0), real(2)),
        "placed": (m.dates("%d %b %Y"), date("%d %b %Y")),
        "weight": ([f"{x:.1f} kg" for x in m.rng.gamma(2, 2, ROWS)], real(1, "1234.5 kg")),
        "due": (m.dates("%m/%d/%Y", upto=12), date("%d/%m/%Y", "%m/%d/%Y")),
    }, {}


def b21_export(m):
    ends = [t if m.rng.random() < 0.7 else "99991231" for t in m.dates("%Y%m%d")]
    days = m.dates("%Y-%m-%dT%H:%M:%S", seconds=True)
    ibans = [f"de{m.rng.integers(10, 99)}50010517{n:010d}" for n in m.unique(0, 10**9)]
    pairs = [m.rng.integers(0, 100, 4) for _ in range(ROWS)]
    return {
        "von": (m.dates("%Y%m%d"), date("%Y%m%d")),
        "bis": (ends, date("%Y%m%d")),
        "konto": (ibans, text("iban")),
        "kontakt": (
            [f"0{m.pick([30, 40, 89, 221])[0]} {n}" for n in m.unique(1_000_000, 9_999_999)],
            text("phone"),
        ),
        "contact": (
            [f"0{m.rng.integers(1, 8)} " + " ".join(f"{n:02d}" for n in four) for four in pairs],
            text("phone"),
        ),
        "desk": (
            [f"({m.rng.integers(200, 999)}) 555-{n:04d}" for n in m.unique(0, 9999)],
            text("phone"),
        ),
        "changed": ([f"{t}{'Z' if i % 3 else ''}" for i, t in enumerate(days)], TEXT),
        "amount": (m.money(), real(2)),
    }, {"separator": ";"}


def b22_visits(m):
    people, names = m.unique(100_000, 9_000_000), m.names()
    icd = ["I10", "E11.9", "J45.0", "M54.5", "F32.1", "I25.1", "K21.0", "E78.5", "N39.0", "R51"]
    drugs = ["Ibuprofen", "Ramipril", "Metformin", "Bisoprolol", "Pantoprazol", "Torasemid"]
    towns = [f"{a}{b}" for a in ("Ober", "Unter", "Neu") for b in ("dorf", "bach", "furt", "heim")]
    return {
        "patient_id": (m.again([f"P{n:07d}" for n in people]), kind("id", format="P[0-9]{7}")),
        "patient_name": (m.again(names), text("name")),
        "Fallnummer": (m.again(m.unique(1_000_000, 9_999_999)), IDENTITY),
        "member": (m.again([f"{n:08x}" for n in m.unique(2**24, 2**32)]), IDENTITY),
        "town": (m.pick(towns), CATEGORICAL),
        "icd": (m.pick(icd), CATEGORICAL),
        "drug_name": (m.pick(drugs), CATEGORICAL),
        "product_code": (m.pick([f"SKU-{n}" for n in range(20_100, 40_100, 1_000)]), CATEGORICAL),
        "plz": (m.pick([f"{n:05d}" for n in range(1_067, 90_000, 9_973)]), CATEGORICAL),
        "ward_id": (m.pick([3, 4, 9, 12, 17]), CATEGORICAL),
        "visits": (m.rng.poisson(3, ROWS).tolist(), INTEGER),
    }, {"separator": ";"}


def b23_payroll(m):
    pay = [f"{abs(x):,.2f}{'-' if x < 0 else ''}" for x in m.rng.normal(2500, 2000, ROWS)]
    sort = [f"{a}-{b}-{c}" for a, b, c in m.rng.integers(10, 99, (ROWS, 3)).tolist()]
    return {
        "Employee": (m.again([f"E{n:06d}" for n in range(120, 900)]), IDENTITY),
        "Manager": (m.again(m.names()), text("name")),
        "Period": (m.pick([f"2023-{n:02d}" for n in range(1, 13)]), CATEGORICAL),
        "Gross": (pay, real(2, "1,234.5")),
        "Hours": (m.pick([37.5, 40.0, 20.0, 30.0]), real(1)),
        "Overtime": ([f"{n / 4:.2f} h" for n in m.whole(0, 90)], real(2, "1234.5 h")),
        "Cost centre": (m.pick([4100, 4120, 4200, 5100, 6300]), CATEGORICAL),
        "Sort code": (sort, IDENTITY),
        "Account": (m.unique(10_000_000, 99_999_999), IDENTITY),
        "Start": (m.dates("%d-%b-%Y"), date("%d-%b-%Y")),
        "Grade": (m.pick(["A1", "B1", "B2", "C2"]), CATEGORICAL),
        "Leaver": (m.pick(["Y", "N"], [0.1, 0.9]), BOOLEAN),
    }, {}


# To judge by


def j01_census(m):
    t = m.table(
        "census_income_kdd",
        [
            "age",
            "class_of_worker",
            "detailed_industry_recode",
            "detailed_occupation_recode",
            "wage_per_hour",
            "sex",
            "instance_weight",
            "num_persons_worked_for_employer",
            "own_business_or_self_employed",
            "veterans_benefits",
            "weeks_worked_in_year",
            "income_gt_50k",
        ],
    )
    facts = [
        INTEGER,
        CATEGORICAL,
        CATEGORICAL,
        CATEGORICAL,
        INTEGER,
        CATEGORICAL,
        real(2),
        INTEGER,
        CATEGORICAL,
        CATEGORICAL,
        INTEGER,
        CATEGORICAL,
    ]
    return {n: filled(v, f) for (n, v), f in zip(t.items(), facts, strict=True)}, {}


def j02_french(m):
    return {
        "dossier": ([f"FR{n:06d}" for n in m.unique(0, 999_999)], kind("id", format="FR[0-9]{6}")),
        "né_le": (m.dates("%d/%m/%Y", "1940-01-01", 25_000), date("%d/%m/%Y")),
        "département": (m.pick(["Isère", "Rhône", "Ardèche", "Finistère"]), CATEGORICAL),
        "fumeur": (m.pick(["oui", "non"]), BOOLEAN),
        "montant": (
            [f"{x:,.2f}".replace(",", " ").replace(".", ",") for x in m.money()],
            real(2, "1 234,5"),
        ),
        "taille": ([eu(x, 2) for x in m.rng.normal(1.7, 0.1, ROWS)], real(2, "1234,5")),
        "remarque": (m.gaps(m.notes()), gap(TEXT)),
    }, {"separator": ";", "encoding": "latin-1"}


def j03_intrusion(m):
    t = m.table(
        "intrusion_nslkdd_test",
        [
            "duration",
            "protocol_type",
            "service",
            "flag",
            "src_bytes",
            "logged_in",
            "count",
            "serror_rate",
            "dst_host_count",
            "label",
        ],
    )
    facts = [
        INTEGER,
        CATEGORICAL,
        CATEGORICAL,
        CATEGORICAL,
        INTEGER,
        BOOLEAN,
        INTEGER,
        real(2),
        INTEGER,
        CATEGORICAL,
    ]
    columns = {f"column_{i + 1}": (v, f) for i, (v, f) in enumerate(zip(t.values(), facts))}  # noqa: B905
    return columns, {"header": False}


def j04_fraud(m):
    t = m.table("credit_fraud", ["Time", "V1", "Amount", "Class"])
    return {
        "transaction": (m.hexes(16), kind("id")),
        "booked": (m.dates("%Y-%m-%dT%H:%M", seconds=True), date("%Y-%m-%dT%H:%M")),
        "Time": (t["Time"], INTEGER),
        "V1": ([f"{x:.6f}" for x in t["V1"]], real(6)),
        "Amount": ([f"£{x:,.2f}" for x in t["Amount"]], real(2, "£1,234.5")),
        "Class": (t["Class"], BOOLEAN),
    }, {}


def j05_laboratory(m):
    when = [
        f"{s}.{n:03d}"
        for s, n in zip(m.dates("%Y-%m-%d %H:%M:%S", seconds=True), m.whole(0, 1000), strict=True)
    ]
    return {
        "sample": (
            [f"S-2021/{n:05d}" for n in m.unique(0, 99_999)],
            kind("id", format="S-2021/[0-9]{5}"),
        ),
        "measured_at": (when, date("%Y-%m-%d %H:%M:%S.%f")),
        "result": (
            m.gaps([f"{x:.3f}" for x in m.rng.gamma(2, 1, ROWS)], "n/a"),
            gap(real(3), "n/a"),
        ),
        "unit": (["mmol/l"] * ROWS, CATEGORICAL),
        "abnormal": (m.pick(["Y", "N"], [0.1, 0.9]), BOOLEAN),
        "operator": (m.pick(["kb", "rt", "lm"]), CATEGORICAL),
    }, {"separator": "\t", "suffix": ".tsv"}


def j06_staff(m):
    names = m.names()
    return {
        "staff_no": (m.unique(10_000, 99_999), IDENTITY),
        "full_name": (names, text("name")),
        "work_mail": (
            [
                f"{n.split()[0][0].lower()}.{n.split()[1].lower()}{i}@firm.example"
                for i, n in enumerate(names)
            ],
            text("email"),
        ),
        "mobile": (
            [
                f"+41 79 {n // 10_000:03d} {n // 100 % 100:02d} {n % 100:02d}"
                for n in m.unique(1_000_000, 9_999_999)
            ],
            text("phone"),
        ),
        "hired": (m.dates("%B %d, %Y", "2001-01-01", 8000), date("%B %d, %Y")),
        "salary": (
            [f"CHF {x:,.2f}".replace(",", "'") for x in m.money(85_000.0)],
            real(2, "CHF 1'234.5"),
        ),
        "workload": (
            [f"{n}%" for n in m.pick([40, 50, 60, 80, 90, 100])],
            kind("integer", format="1234%"),
        ),
        "team": (m.pick(["Sales", "R&D", "Finance", "People"]), CATEGORICAL),
    }, {}


def j07_cover(m):
    names = [
        "Elevation",
        "Aspect",
        "Slope",
        "Vertical_Distance_To_Hydrology",
        "Wilderness_Area1",
        "Wilderness_Area3",
        "Cover_Type",
    ]
    t = m.table("covertype", names)
    facts = [INTEGER, INTEGER, INTEGER, INTEGER, BOOLEAN, BOOLEAN, CATEGORICAL]
    columns = {n: (v, f) for (n, v), f in zip(t.items(), facts, strict=True)}
    soils = [1, 4, 7, 12, 14, 22, 29, 33, 38]
    columns["soil_code"] = (m.pick(soils), CATEGORICAL)
    return columns, {"separator": "\t", "suffix": ".tsv"}


def j08_accounts(m):
    accounts = [
        f"GB{n % 97:02d} BARC 2000 {n // 10_000:04d} {n % 10_000:04d} {m.rng.integers(100):02d}"
        for n in m.unique(0, 99_999_999)
    ]
    areas, ends = m.pick(["SW", "N", "E", "LS", "M", "CB"]), m.pick(["AB", "DE", "FG", "HJ"])
    post = [
        f"{a}{m.rng.integers(1, 29)} {m.rng.integers(1, 9)}{b}"
        for a, b in zip(areas, ends, strict=True)
    ]
    amount = m.rng.normal(500, 900, ROWS)
    return {
        "iban": (accounts, text("iban")),
        "postcode": (post, text("postcode")),
        "currency": (m.pick(["GBP", "EUR", "USD"], [0.8, 0.15, 0.05]), CATEGORICAL),
        "balance": ([f"({-x:,.2f})" if x < 0 else f"{x:,.2f}" for x in amount], real(2, "1,234.5")),
        "opened": (m.dates("%d-%m-%Y", "1995-01-01", 9000), date("%d-%m-%Y")),
        "joint": (m.pick(["No", "Yes"]), BOOLEAN),
    }, {}


def j09_sessions(m):
    return {
        "session": (m.hexes(8, 4, 4, 4, 12), text("uuid")),
        "address": (
            [".".join(str(n) for n in m.rng.integers(1, 255, 4)) for _ in range(ROWS)],
            text("ip"),
        ),
        "agent": (m.pick(["Firefox", "Chrome", "Safari"]), CATEGORICAL),
        "landing": (
            [
                f"http://shop.example/{w}/{n}"
                for w, n in zip(m.pick(WORDS), m.unique(0, 9999), strict=True)
            ],
            text("url"),
        ),
        "seconds": ([round(x, 1) for x in m.rng.exponential(60, ROWS).tolist()], real(1)),
        "converted": (m.pick([True, False]), BOOLEAN),
        "pages": (m.rng.geometric(0.3, ROWS).tolist(), INTEGER),
    }, {"suffix": ".jsonl"}


def j10_survey(m):
    return {
        "respondent": (list(range(5001, 5001 + ROWS)), IDENTITY),
        "age": (m.gaps(m.whole(16, 95), "?"), gap(INTEGER, "?")),
        "owns_car": (m.pick(["T", "F"]), BOOLEAN),
        "answer": (m.pick(["agree", "neutral", "disagree", "strongly agree"]), CATEGORICAL),
        "comment": (m.gaps(m.notes(), "", 0.6), gap(TEXT)),
        "income_band": (m.pick(["<20k", "20-40k", "40-80k", ">80k"]), CATEGORICAL),
        "finished": (m.dates("%Y/%m/%d %H:%M:%S", seconds=True), date("%Y/%m/%d %H:%M:%S")),
    }, {}


def j11_coded(m):
    t = m.table(
        "adult_privmrf",
        [
            "workclass",
            "marital-status",
            "occupation",
            "relationship",
            "race",
            "sex",
            "native-country",
            "income",
        ],
    )
    columns = {n: (v, BOOLEAN if n in ("sex", "income") else CATEGORICAL) for n, v in t.items()}
    columns["age"] = (m.whole(17, 90), INTEGER)
    return columns, {}


def j12_practice(m):
    streets = m.pick(["Hauptstraße", "Bahnhofstraße", "Lindenweg", "Am Markt", "Gartenstraße"])
    return {
        "Name": (m.names(), text("name")),
        "Geburtsdatum": (m.dates("%d.%m.%Y", "1935-01-01", 28_000), date("%d.%m.%Y")),
        "PLZ": ([f"{n:05d}" for n in m.unique(1067, 99_998)], text("postcode")),
        "Straße": ([f"{s} {m.rng.integers(1, 180)}" for s in streets], text("address")),
        "Telefon": (
            [f"0{m.rng.integers(30, 999)}/{n}" for n in m.unique(100_000, 9_999_999)],
            text("phone"),
        ),
        "Privat versichert": (m.pick(["ja", "nein"], [0.1, 0.9]), BOOLEAN),
        "Betrag": ([eu(x) for x in m.money(90.0)], real(2, "1.234,5")),
    }, {"separator": ";", "encoding": "latin-1"}


def j13_wide_letters(m):
    return {
        "città": (m.pick(["Forlì", "Cefalù", "Milano", "Bari"]), CATEGORICAL),
        "data": (m.dates("%Y/%m/%d"), date("%Y/%m/%d")),
        "abitanti": ([f"{n:,}" for n in m.whole(300, 900_000)], kind("integer", format="1,234")),
        "quota": ([f"{x:.1f}" for x in m.rng.gamma(3, 100, ROWS)], real(1)),
        "capoluogo": (m.pick([0, 1]), BOOLEAN),
    }, {"encoding": "utf-16"}


def j14_plant(m):
    return {
        "batch": (list(range(100_001, 100_001 + ROWS)), IDENTITY),
        "made": (m.dates("%Y%m%d"), date("%Y%m%d")),
        "dept": (m.pick([10, 20, 30, 50, 90]), CATEGORICAL),
        "product": (
            m.pick([f"{a}-{n}" for a in ("AB", "CX") for n in (1200, 1250, 3100)]),
            CATEGORICAL,
        ),
        "defects": (m.rng.poisson(1.2, ROWS).tolist(), INTEGER),
        "temp": ([f"{x:.1f} °C" for x in m.rng.normal(180, 6, ROWS)], real(1, "1234.5 °C")),
        "shift_start": (m.dates("%H:%M:%S", seconds=True), date("%H:%M:%S")),
    }, {}


def j15_blanks(m):
    return {
        "pressure": (m.gaps(m.whole(80, 190), "-"), gap(INTEGER, "-")),
        "ratio": (
            m.gaps([f"{x:.2f}" for x in m.rng.uniform(0, 3, ROWS)], "NULL"),
            gap(real(2), "NULL"),
        ),
        "started": (m.gaps(m.dates("%d.%m.%Y"), "n/a"), gap(date("%d.%m.%Y"), "n/a")),
        "stage": (m.gaps(m.pick(["I", "II", "III", "IV"]), "NA"), gap(CATEGORICAL, "NA")),
        "consent": (m.gaps(m.pick(["yes", "no"]), "N/A"), gap(BOOLEAN, "N/A")),
        "dose": (m.gaps([f"{x:.1f}" for x in m.rng.gamma(2, 5, ROWS)], "."), gap(real(1), ".")),
        "cost": (m.gaps([f"${x:,.2f}" for x in m.money()]), gap(real(2, "$1,234.5"))),
    }, {}


def j16_odd(m):
    keys = m.unique(100_000, 999_999)
    keys[7], keys[90] = keys[3], keys[11]  # a mistake of whoever typed them
    return {
        "case_id": (keys, IDENTITY),
        "empty": ([""] * ROWS, gap(TEXT)),
        "site": (["Graz"] * ROWS, CATEGORICAL),
        "export": (["2024-01-31"] * ROWS, date("%Y-%m-%d")),
        "protocol": ([2] * ROWS, INTEGER),
        "seen": (m.dates("%d/%m/%y"), date("%d/%m/%y")),
        "value": ([f"{x:.2f}" for x in m.rng.normal(0, 1, ROWS)], real(2)),
    }, {}


def j17_nameless(m):
    t = m.table(
        "churn",
        [
            "CustomerId",
            "CreditScore",
            "Geography",
            "Gender",
            "Age",
            "Balance",
            "IsActiveMember",
            "EstimatedSalary",
        ],
    )
    facts = [IDENTITY, INTEGER, CATEGORICAL, CATEGORICAL, INTEGER, real(2), BOOLEAN, real(2)]
    columns = {f"column_{i + 1}": (v, f) for i, (v, f) in enumerate(zip(t.values(), facts))}  # noqa: B905
    return columns, {"header": False, "suffix": ".csv.gz"}


def j18_blocks(m):
    t = m.table(
        "california_housing",
        [
            "longitude",
            "total_rooms",
            "population",
            "households",
            "median_income",
            "median_house_value",
            "ocean_proximity",
        ],
    )
    facts = [real(2), INTEGER, INTEGER, INTEGER, real(4), INTEGER, CATEGORICAL]
    return {n: filled(v, f) for (n, v), f in zip(t.items(), facts, strict=True)}, {}


def j19_pima(m):
    t = m.table(
        "diabetes",
        [
            "Pregnancies",
            "Glucose",
            "BloodPressure",
            "BMI",
            "DiabetesPedigreeFunction",
            "Age",
            "Outcome",
        ],
    )
    comma = {"BMI": 1, "DiabetesPedigreeFunction": 3}
    columns = {}
    for name, values in t.items():
        if name in comma:
            written = [str(v).replace(".", ",") for v in values]
            columns[name] = (written, real(comma[name], "1234,5"))
        else:
            columns[name] = (values, BOOLEAN if name == "Outcome" else INTEGER)
    return columns, {"separator": ";"}


def j20_hotel(m):
    letters = list("ABCDEFGHJKLMNPQRSTUVWXYZ23456789")
    return {
        "reference": (["".join(m.rng.choice(letters, 6)) for _ in range(ROWS)], IDENTITY),
        "arrival": (m.dates("%m/%d/%Y", upto=12), date("%m/%d/%Y")),
        "departure": (m.dates("%m/%d/%Y"), date("%m/%d/%Y")),
        "check_in": (m.dates("%I:%M %p", seconds=True), date("%I:%M %p")),
        "room": (m.pick([101, 102, 105, 201, 204, 310, 312]), CATEGORICAL),
        "rate": ([f"${x:,.0f}" for x in m.money(160.0)], kind("integer", format="$1,234")),
        "stars": (m.pick([2.5, 3.0, 3.5, 4.0, 4.5, 5.0]), real(1)),
        "guests": (m.pick([1, 2, 3, 4], [0.3, 0.5, 0.1, 0.1]), INTEGER),
    }, {}


def j21_claims(m):
    atc = [
        f"{a}{n:02d}{b}{k:02d}"
        for a in "ACN"
        for n in (2, 10)
        for b in ("AA", "BC")
        for k in (1, 5)
    ]
    items = ["Desk Lamp", "Office Chair", "Note Book", "Wall Clock", "Tea Pot", "Coat Rack"]
    return {
        "KVNR": (m.again([f"{'ABKT'[n % 4]}{n:09d}" for n in m.unique(0, 10**9)]), IDENTITY),
        "userId": (m.again(m.unique(1_000, 60_000), 9), IDENTITY),
        "numéro client": (m.again([f"C-{n}" for n in m.unique(100, 90_000)]), IDENTITY),
        "product name": (m.pick(items), CATEGORICAL),
        "atc": (m.pick(atc), CATEGORICAL),
        "city": (m.pick([f"{a}ton" for a in LAST]), CATEGORICAL),
        "zip": (m.pick([10_115, 20_095, 50_667, 60_311, 80_331, 70_173]), CATEGORICAL),
        "store_no": (m.pick([101, 105, 230, 411]), CATEGORICAL),
        "paid": (m.money(60.0), real(2)),
        "year": (m.whole(2015, 2024), INTEGER),
    }, {}


def j22_follow_up(m):
    wave = [1 + i % 4 for i in range(ROWS)]
    return {
        "id": ([1 + i // 4 for i in range(ROWS)], IDENTITY),
        "wave": (wave, INTEGER),
        "subject_hash": ([h for h in m.hexes(16)[: ROWS // 4] for _ in range(4)], IDENTITY),
        "phone": (
            [f"+49 30 555 {n:04d}" for n in m.unique(0, 9999)[: ROWS // 8] for _ in range(8)],
            text("phone"),
        ),
        "clinic_nr": (m.pick([11, 14, 20, 37, 52]), CATEGORICAL),
        "physician": (m.pick([f"Dr. {n}" for n in LAST[:9]]), CATEGORICAL),
        "score": (m.rng.binomial(30, 0.6, ROWS).tolist(), INTEGER),
        "weight": ([f"{x:.1f}" for x in m.rng.normal(75, 12, ROWS)], real(1)),
    }, {}


def j23_results(m):
    def measured(mean, digits, below):
        texts = [eu(x, digits) for x in m.rng.lognormal(np.log(mean), 0.5, ROWS)]
        return m.gaps(texts, below, 0.15)

    order = [f"2023-{n:06d}" for n in m.unique(0, 999_999)]
    senders = [f"A{n:03d}" for n in (4, 11, 17, 23, 31, 48, 52, 60)]
    return {
        "Auftrag": (order, kind("id", format="2023-[0-9]{6}")),
        "Einsender": (m.pick(senders), CATEGORICAL),
        "Kreatinin": (measured(1.1, 2, "<0,20"), gap(real(2, "1234,5"), "<0,20")),
        "CRP": (measured(8, 1, "< 0,6 mg/l"), gap(real(1, "1234,5"), "< 0,6 mg/l")),
        "eGFR": (m.gaps(m.whole(20, 90), ">90", 0.3), gap(INTEGER, ">90")),
        "Kalium": (m.gaps(measured(4.2, 2, "hämolyt."), "folgt", 0.05),
                   gap(real(2, "1234,5"), "folgt", "hämolyt.")),
        "Befund": (m.dates("%d.%m.%Y %H:%M", seconds=True), date("%d.%m.%Y %H:%M")),
        "Material": (m.pick(["Serum", "EDTA", "Urin"]), CATEGORICAL),
        "Geschlecht": (m.pick(["m", "w"]), CATEGORICAL),
        "Kommentar": (m.gaps(m.notes(), "", 0.7), gap(TEXT)),
    }, {"separator": ";", "encoding": "cp1252"}  # fmt: skip


def j25_clinique(m):
    codes = [f"{a}{n:02d}{k}" for a in "CEFIJKMN" for n in (10, 22, 48) for k in ("", ".1", ".9")]
    share = 1 / np.arange(1, len(codes) + 1)
    tension = [f"{a}/{b}" for a, b in zip(m.whole(9, 19), m.whole(5, 11), strict=True)]
    length = [f"{a}h {b:02d}min" for a, b in zip(m.whole(0, 9), m.whole(0, 60), strict=True)]
    return {
        "IPP": (m.again(m.unique(10_000_000, 89_999_999)), IDENTITY),
        "Date d'entrée": (m.dates("%d/%m/%Y %H:%M", seconds=True), date("%d/%m/%Y %H:%M")),
        "Sexe": (m.pick("MF"), CATEGORICAL),
        "Poids": ([f"{eu(x, 1)} kg" for x in m.rng.normal(72, 12, ROWS)], real(1, "1234,5 kg")),
        "TA": (tension, TEXT),
        "Diabète": (m.pick(["O", "N"], [0.2, 0.8]), BOOLEAN),
        "CIM10": (m.pick(codes, share / share.sum()), CATEGORICAL),
        "Code postal": (m.pick([38_000, 38_100, 69_003, 69_007, 73_000]), CATEGORICAL),
        "Durée": (length, TEXT),
        "Médecin": (m.pick([f"Dr {n}" for n in LAST[:9]]), CATEGORICAL),
        "Tabac": (m.pick(["oui", "non", "NSP"]), CATEGORICAL),
    }, {"separator": ";", "encoding": "cp1252"}


def j26_ankieta(m):
    media = [
        "|".join(w for w in ("TV", "Prasa", "Radio") if m.rng.random() < 0.6) for _ in range(ROWS)
    ]
    return {
        "Nr ankiety": (list(range(3001, 3001 + ROWS)), IDENTITY),
        "Płeć": (m.pick("KM"), CATEGORICAL),
        "Wiek": (m.gaps(m.whole(18, 85), "odmowa"), gap(INTEGER, "odmowa")),
        "Zadowolenie": (m.pick([1, 2, 3, 4, 5], [0.1, 0.2, 0.4, 0.2, 0.1]), INTEGER),
        "Zatrudniony": (m.pick(["tak", "nie"]), BOOLEAN),
        "Media": (media, gap(CATEGORICAL)),
        "Uwagi": (m.gaps(m.notes(), "", 0.5), gap(TEXT)),
        "Kod pocztowy": ([f"{n // 1000:02d}-{n % 1000:03d}" for n in m.unique(1, 99_999)],
                         kind("text")),
        "Data wywiadu": (m.dates("%Y/%m/%d"), date("%Y/%m/%d")),
        "Dochód": ([f"{int(x):,} zł".replace(",", " ") for x in m.money(4500)],
                   kind("integer", format="1 234 zł")),
    }, {}  # fmt: skip


def j27_fleet(m):
    letters = list("ABCDEFGHJKLMNPRSTUVWXYZ0123456789")
    vins = ["WVW" + "".join(m.rng.choice(letters, 14)) for _ in range(ROWS)]
    faults = m.gaps(m.pick(["P0420", "P0300", "P0171", "U0100"]), "", 0.8)
    return {
        "vin": (m.again(vins), IDENTITY),
        "timestamp": ((1_698_800_000 + np.cumsum(m.rng.integers(1, 900, ROWS))).tolist(), INTEGER),
        "odometer": ([f"{n:,} km".replace(",", " ") for n in m.whole(900, 240_000)],
                     kind("integer", format="1 234 km")),
        "outside": ([f"{x:.1f}".replace("-", "\u2212") for x in m.rng.normal(2, 6, ROWS)],
                    real(1, "1234.5")),
        "gear": (m.pick(["R", "N", "1", "2", "3", "4", "5"]), CATEGORICAL),
        "fault": (faults, gap(CATEGORICAL)),
        "lat": ([f"{x:.5f}" for x in m.rng.normal(52.5, 0.1, ROWS)], real(5)),
        "ignition": (m.pick(["on", "off"]), BOOLEAN),
        "firmware": (m.pick(["v2.3.1", "v2.3.4", "v2.4.0-rc1"]), CATEGORICAL),
        "bluetooth": ([":".join(h[i : i + 2] for i in range(0, 12, 2)) for h in m.hexes(12)],
                      IDENTITY),
        "heading": (m.pick(["N", "NE", "E", "SE", "S", "SW", "W", "NW"]), CATEGORICAL),
    }, {}  # fmt: skip


def j28_sales(m):
    done = m.gaps(m.dates("%d.%m.%Y"), "00.00.0000", 0.3)
    names = [n.lower().replace(" ", ".") for n in m.names()]
    return {
        "Beleg": ([f"SO-2023-{n:06d}" for n in m.unique(0, 99_999)],
                  kind("id", format="SO-2023-0[0-9]{5}")),
        "Pos": (m.pick([10, 20, 30, 40], [0.5, 0.3, 0.1, 0.1]), CATEGORICAL),
        "Kunde": (m.again([f"C{n:05d}" for n in m.unique(40, 99_999)]), IDENTITY),
        "Artikel": (m.pick([f"SKU {n}" for n in range(1040, 1060)]), CATEGORICAL),
        "Menge": ([eu(x, 3) for x in m.rng.gamma(3, 4, ROWS)], real(3, "1234,5")),
        "Preis": ([f"{eu(x)} EUR" for x in m.rng.gamma(3, 20, ROWS)], real(2, "1234,5 EUR")),
        "Rabatt": ([f"{eu(x, 1)}%" for x in m.rng.uniform(0, 30, ROWS)], real(1, "1234,5%")),
        "Wunsch": (m.pick([f"2023-W{n}" for n in range(40, 50)]), CATEGORICAL),
        "Geliefert": (done, gap(date("%d.%m.%Y"), "00.00.0000")),
        "Bezahlt": (m.pick(["X", ""], [0.7, 0.3]), gap(CATEGORICAL)),
        "Ziel": (m.pick(["30 Tage netto", "sofort", "14 Tage 2 %"]), CATEGORICAL),
        "E-Mail": ([f"{n}@firma.example" for n in names], text("email")),
    }, {"separator": ";"}  # fmt: skip


def j29_umfrage(m):
    chosen = [",".join(str(n) for n in range(1, 6) if m.rng.random() < 0.35) for _ in range(ROWS)]
    agree = ["1 = gar nicht", "2", "3", "4", "5 = völlig"]
    return {
        "lfdn": (m.unique(1, 400), IDENTITY),
        "dispcode": (m.pick([20, 22, 31, 32], [0.1, 0.1, 0.7, 0.1]), CATEGORICAL),
        "alter": (m.gaps(m.whole(18, 80)), gap(INTEGER)),
        "v_12_1": (m.gaps(m.pick([0, 1])), gap(BOOLEAN)),
        "v_12_2": (m.pick(["quoted", "not quoted"], [0.3, 0.7]), CATEGORICAL),
        "v_13": (chosen, gap(CATEGORICAL)),
        "v_14": (m.pick(agree), CATEGORICAL),
        "rauchen": (m.pick([0, 1, 2, 9], [0.6, 0.2, 0.15, 0.05]), CATEGORICAL),
        "bildung": (m.pick([1, 2, 3, 4, 5, 98, 99], [0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.05]),
                    CATEGORICAL),
        "empfehlung": (m.rng.binomial(10, 0.7, ROWS).tolist(), INTEGER),
        "haushalt": (m.gaps(m.pick([1, 2, 3, 4, 5], [0.3, 0.3, 0.2, 0.1, 0.1]), "k.A."),
                     gap(INTEGER, "k.A.")),
        "v_20_offen": (m.gaps(m.notes(), "", 0.7), gap(TEXT)),
        "dauer": (m.rng.gamma(4, 120, ROWS).astype(int).tolist(), INTEGER),
        "datetime": (m.dates("%Y-%m-%d %H:%M:%S", seconds=True), date("%Y-%m-%d %H:%M:%S")),
    }, {"separator": ";", "encoding": "cp1252"}  # fmt: skip


def j30_labor(m):
    below = m.gaps([f"{x:.2f}" for x in m.rng.lognormal(0, 1, ROWS)], "<0.05", 0.1)
    copies = m.gaps([f"{x:.2E}" for x in m.rng.lognormal(9, 2, ROWS)], "#DIV/0!", 0.05)
    return {
        "accession": ([f"L24-{n:06d}" for n in m.unique(0, 999_999)],
                      kind("id", format="L24-[0-9]{6}")),
        "patient_id": (m.again([f"H{n:07d}" for n in m.unique(0, 9_999_999)], 4), IDENTITY),
        "analyte": (m.pick(["CRP", "TSH", "fT4", "HbA1c"]), CATEGORICAL),
        "result": (below, gap(real(2), "<0.05")),
        "unit": (m.pick(["mg/L", "mU/L", "pmol/L", "%"]), CATEGORICAL),
        "reference": (m.pick(["0.27-4.2", "12-22", "<5.0", "4.0-6.0"]), CATEGORICAL),
        "flag": (m.gaps(m.pick(["H", "L", "HH"]), "", 0.6), gap(CATEGORICAL)),
        "copies": (copies, gap(kind("continuous", decimals=None), "#DIV/0!")),
        "ct": (m.gaps([f"{x:.1f}" for x in m.rng.normal(28, 4, ROWS)], "#N/A"),
               gap(real(1), "#N/A")),
        "dilution": (m.pick(["1:1", "1:2", "1:10", "1:100"]), CATEGORICAL),
        "well": (m.pick([f"{a}{n}" for a in "ABCDEFGH" for n in range(1, 13)]), CATEGORICAL),
        "run_at": (m.dates("%Y-%m-%dT%H:%M:%S", seconds=True), date("%Y-%m-%dT%H:%M:%S")),
        "operator": (m.pick(["AB", "CD", "EF"]), CATEGORICAL),
    }, {
        "above": ["# exported 2024-05-01 by lis2csv 4.1", "# site: Graz, 2 analysers", "#"],
    }  # fmt: skip


def j31_zeiten(m):
    over = [f"{m.rng.choice(['+', '-'])}{a}:{b:02d}" for a, b in zip(m.whole(0, 4), m.whole(0, 60))]  # noqa: B905
    return {
        "Personalnummer": (m.again(m.unique(1000, 9999), 8), IDENTITY),
        "Datum": (m.dates("%d.%m.%y"), date("%d.%m.%y")),
        "Tag": (m.pick(["Mo", "Di", "Mi", "Do", "Fr"]), CATEGORICAL),
        "Kommen": (m.gaps(m.dates("%H:%M", seconds=True)), gap(date("%H:%M"))),
        "Gehen": (m.gaps(m.dates("%H:%M", seconds=True), "--:--"), gap(date("%H:%M"), "--:--")),
        "Pause": (m.pick([0, 30, 45, 60], [0.1, 0.5, 0.3, 0.1]), INTEGER),
        "Ist": ([eu(x) for x in m.rng.normal(7.7, 0.8, ROWS)], real(2, "1234,5")),
        "Saldo": (over, TEXT),
        "Kostenstelle": (m.pick([4100, 4110, 4200, 4730]), CATEGORICAL),
        "Abwesend": (m.gaps(m.pick(["U", "K", "DR"]), "", 0.8), gap(CATEGORICAL)),
        "Schicht": (m.pick(["F", "S", "N"]), CATEGORICAL),
        "genehmigt": (m.gaps(["x"] * ROWS, "", 0.3), gap(CATEGORICAL)),
        "Bemerkung": (m.gaps(m.notes(), "", 0.8), gap(TEXT)),
    }, {"separator": ";", "encoding": "utf-8-sig",
        "above": ["Zeiterfassung Werk Süd, 2024", ""]}  # fmt: skip


def j32_sensors(m):
    flow = m.gaps([f"{x:.3e}" for x in m.rng.lognormal(-6, 1, ROWS)], "nan", 0.05)
    return {
        "time": (m.dates("%Y-%m-%dT%H:%M:%SZ", seconds=True), date("%Y-%m-%dT%H:%M:%SZ")),
        "device": (m.pick([f"dev-{n:02d}" for n in range(1, 9)]), CATEGORICAL),
        "frame_no": (list(range(88_001, 88_001 + ROWS)), IDENTITY),
        "temp_C": (m.gaps([f"{x:.2f}" for x in m.rng.normal(20, 5, ROWS)], "NaN"),
                   gap(real(2), "NaN")),
        "humidity": (m.whole(20, 95), INTEGER),
        "pulses_total": ((40_000 + np.cumsum(m.rng.integers(1, 30, ROWS))).tolist(), INTEGER),
        "uptime_s": ((np.cumsum(m.rng.integers(55, 66, ROWS))).tolist(), INTEGER),
        "rssi": (m.whole(-110, -40), INTEGER),
        "status": (m.pick(["0x00", "0x10", "0x80"], [0.8, 0.1, 0.1]), CATEGORICAL),
        "flow": (flow, gap(kind("continuous", decimals=None), "nan")),
        "battery": ([f"{x:.3f} V" for x in m.rng.normal(3.6, 0.1, ROWS)], real(3, "1234.5 V")),
        "door": (m.pick(["open", "closed"]), CATEGORICAL),
        "alarm": (m.pick([0, 1], [0.9, 0.1]), BOOLEAN),
    }, {"separator": "\t", "suffix": ".tsv",
        "above": ["# logger 7, firmware 2.3", "# UTC"]}  # fmt: skip


def j33_school(m):
    return {
        "Schülernummer / Student no.": ([f"S{n:05d}" for n in m.unique(0, 99_999)],
                                        kind("id", format="S[0-9]{5}")),
        "Klasse / Class": (m.pick([f"{n}{a}" for n in range(5, 11) for a in "abc"]), CATEGORICAL),
        "Nachname / Surname": ([n.split()[1] for n in m.names()], text("name")),
        "geboren / Date of birth": (m.dates("%d/%m/%Y", "2007-01-01", 2500), date("%d/%m/%Y")),
        "Note / Grade": (m.pick([1, 2, 3, 4, 5, 6], [0.1, 0.3, 0.3, 0.2, 0.07, 0.03]), INTEGER),
        "Schnitt / Average": ([f"{x:.2f}" for x in m.rng.uniform(1, 5, ROWS)], real(2)),
        "Fehltage / Days absent": (m.rng.geometric(0.15, ROWS).tolist(), INTEGER),
        "Sprache / Language": (m.pick(["Deutsch", "Türkçe", "العربية", "Українська"]), CATEGORICAL),
        "Förderbedarf / Special needs": (m.pick(["ja/yes", "nein/no"], [0.1, 0.9]), CATEGORICAL),
        "Telefon / Phone": ([f"+43 660 {n}" for n in m.unique(1_000_000, 9_999_999)],
                            text("phone")),
        "PLZ / Postcode": (m.pick([8010, 8020, 8041, 8052]), CATEGORICAL),
        "Bus": (m.pick(["J", "N"]), BOOLEAN),
        "Weg / Way": ([f"{x:.1f} km" for x in m.rng.gamma(2, 2, ROWS)], real(1, "1234.5 km")),
        "Noten / Notes": (m.gaps(m.notes(), "", 0.6), gap(TEXT)),
    }, {"empty": 3}  # fmt: skip


def j34_permits(m):
    post = [f"{n // 1000:02d}-{n % 1000:03d}" for n in m.unique(1, 99_999)]
    fee = [f"{x:,.2f} zł".translate(str.maketrans(",.", "\u00a0,")) for x in m.money(900)]
    parcels = [
        f"1412{a:02d}_1.{b:04d}.{c}/{d}"
        for a, b, c, d in zip(
            m.whole(1, 9), m.whole(1, 40), m.unique(1, 999), m.whole(1, 9), strict=True
        )
    ]
    return {
        "Znak sprawy": ([f"AB.6740.{n}.2024" for n in m.unique(100, 999)],
                        kind("id", format="AB.6740.[0-9]{3}.2024".replace(".", "\\."))),
        "Rejestr": ((1200 + np.cumsum(m.rng.integers(1, 4, ROWS))).tolist(), IDENTITY),
        "Działka": (parcels, IDENTITY),
        "Kod pocztowy": (post, kind("text")),
        "Wpłynęło": (m.dates("%d-%m-%Y"), date("%d-%m-%Y")),
        "Data decyzji": (m.whole(44_927, 45_292), INTEGER),
        "Zgoda": (m.pick(["T", "N"], [0.8, 0.2]), BOOLEAN),
        "Inwestor": (m.pick(["osoba fizyczna", "spółka", "gmina"]), CATEGORICAL),
        "Kategoria": (m.pick(["I", "II", "XIII", "XVII"]), CATEGORICAL),
        "Opłata": (fee, real(2, "1\u00a0234,5 zł")),
        "Kubatura": ([f"{x:.2f}" for x in m.rng.gamma(3, 200, ROWS)], real(2)),
        "Kondygnacje": (m.pick([1, 2, 3, 4, 5], [0.4, 0.4, 0.1, 0.05, 0.05]), INTEGER),
        "Wnioski narastająco": ((310 + np.cumsum(m.rng.integers(0, 6, ROWS))).tolist(), INTEGER),
        "Ulica": (m.pick([f"ul. {n}a" for n in LAST[:12]]), CATEGORICAL),
        "Uwagi": (m.gaps(m.notes(), "brak", 0.7), gap(TEXT, "brak")),
    }, {"separator": ";",
        "above": ["Rejestr pozwoleń na budowę", "Stan na: 2024-12-31", ""]}  # fmt: skip


def write(
    folder, name, columns, *, separator=",", encoding="utf-8", header=True, suffix=".csv", above=(),
    empty=0,
):  # fmt: skip
    folder.mkdir(exist_ok=True)
    rows = list(zip(*(values for values, _ in columns.values()), strict=True))
    if suffix == ".jsonl":
        lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
        data = "".join(line + "\n" for line in lines).encode()
    else:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=separator, lineterminator="\n")
        out.writelines(f"{line}\n" for line in above)
        tail = [""] * empty  # columns without a name or a value
        writer.writerows([[*columns, *tail]] if header else [])
        writer.writerows([*row, *tail] for row in rows)
        data = out.getvalue().encode(encoding)
    if suffix.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    (folder / f"{name}{suffix}").write_bytes(data)
    facts = {"file": f"{name}{suffix}", "columns": {n: facts for n, (_, facts) in columns.items()}}
    (folder / f"{name}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def main(source):
    for name, maker in sorted(globals().items()):
        if name[:1] in "bj" and name[1:3].isdigit():
            columns, options = maker(Maker(name, source))
            write(HERE / ("tuned" if name[0] == "b" else "judge"), name, columns, **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
