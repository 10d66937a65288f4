"""policy.toml: what a party's owner allows, whatever a study asks for.

The file lies in the party's folder and never leaves it. A study beyond it is refused, before it
begins and at every stage. Every field has a default; `write_policy` writes a file in which each is
explained. A key that is not known is refused, never ignored.

A study promises an epsilon of one row to everyone who sees the result. It states a larger one where
another party knows whose rows these are, or where one person has rows at several parties. A policy
is held against the largest of these. It bounds the epsilon of one person, who may have several
rows. What holds for a row at (e, d) holds for k rows at (k e, d (exp(k e) - 1) / (exp(e) - 1))
(Vadhan 2017, "The complexity of differential privacy", lemma 2.2); the policy is converted once, by
this formula, into the bound of a row, and all that follows is compared with that.

**Guarantee**: what all studies of a party cost a person together is within `epsilon_in_all` at
`delta`. Each study's ledger refuses what is beyond the study's budget. Of studies, any of which may
still continue, epsilons add up and deltas add up, whatever their mechanisms are (Dwork & Roth 2014,
"The algorithmic foundations of differential privacy", theorem 3.16; for studies at the same time
Vadhan & Zhang 2023, "Concurrent composition theorems for differential privacy"). `check` refuses a
study that would pass the bound, before anything of it is released. A study whose guarantee is not
"dp" counts as infinite. Neighbours are those of each study. What other studies may cost is read
from the party's account, which is written before a study begins (app/account.py). Assumed: nobody
has more rows here than `rows_per_person`, and all studies of these rows are run with one key: a
study's folder with a key of its own has an account of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import expm1, inf
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from msgspec import structs

from siloweave.app.account import Charged
from siloweave.app.plan import statements_of
from siloweave.app.study import (
    Section,
    Study,
    check_tables,
    close_match,
    converted,
    in_toml,
)
from siloweave.core.method import (
    GUARANTEES,
    MethodSettings,
    shares_columns,
    smallest_sum,
)
from siloweave.core.settings import Job
from siloweave.errors import InputError, count_of, number, whole
from siloweave.methods.registry import METHODS
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Event
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Entry
from siloweave.tables.schema import Schema

POLICY_FILE = "policy.toml"
"""What the file is called in a party's folder."""

TRUST = ("secure-sum", "mpc", "local")
"""Trust models that a policy may accept.

Where a method has a curator, that is the one party which holds all rows, or the method promises
nothing, which `guarantees` allows or not.
"""

_BOUNDS = ("epsilon_per_study", "epsilon_in_all")  # of [budget], which may be infinite
_LARGEST = 100.0  # a finite epsilon beyond it promises nothing
_FEW = 5  # names that are shown of many


class Spending(Section, frozen=True):
    """``[budget]``: the most that a person may lose, at `delta`; `inf` bounds nothing.

    `epsilon_per_study` holds for each study, `epsilon_in_all` for all studies of the party, whose
    deltas add up to `delta` at most.
    """

    epsilon_per_study: float = 1.0
    epsilon_in_all: float = 3.0
    delta: float = 1e-5
    rows_per_person: int = 1


class Allowed(Section, frozen=True):
    """``[studies]``: which are allowed; empty `methods` and `columns` allow all.

    `trust` are the trust models: "secure-sum" and "local" hold whatever the coordinator sends,
    "mpc" only if it follows the protocol. `smallest_cohort` is the fewest parties of any sum that a
    study may ask for; two at least hide a party's own counts from the coordinator.

    `names` are those by which a study may list this party; see `Policy.check_name`.

    `alignment` lets a study find the rows that parties have in common, `shared_columns` lets
    synthetic columns of this party be put together with those of others. With `results` the
    synthetic table and the public report are stored here when the study has ended.
    """

    guarantees: tuple[str, ...] = ("dp",)
    trust: tuple[str, ...] = ("secure-sum", "local")
    methods: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    smallest_roster: int = 2
    smallest_cohort: int = 2
    alignment: bool = False
    shared_columns: bool = True
    results: bool = False
    approval: Literal["by hand", "auto"] = "by hand"


class Policy(Section, frozen=True):
    """A party's policy.

    Raises:
        InputError: A value is out of bounds, or names what there is not.

    Example:
        >>> Policy(Spending(epsilon_in_all=2.0, rows_per_person=2)).limit.epsilon
        1.0
    """

    budget: Spending = Spending()
    studies: Allowed = Allowed()

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_words()
        # Last, since it compares values that are right by themselves.
        impossible = next(self._impossible(), "")
        if impossible:
            raise InputError(f"{impossible}, so no study can meet this policy.")

    def _check_numbers(self) -> None:
        """Refuse numbers that are out of bounds."""
        budget = self.budget
        studies = self.studies
        for name in _BOUNDS:
            bound = getattr(budget, name)
            if bound != inf:
                number(f"[budget] {name}", bound, 0, _LARGEST, "(]")
        number("[budget] delta", budget.delta, 0, 1, "()")
        whole("[budget] rows_per_person", budget.rows_per_person, 1)
        whole("[studies] smallest_roster", studies.smallest_roster, 1)
        whole("[studies] smallest_cohort", studies.smallest_cohort, 1)

    def _check_words(self) -> None:
        """Refuse names of guarantees, trust models and methods that there are not."""
        vocabularies = {
            "guarantees": GUARANTEES,
            "trust": TRUST,
            "methods": tuple(METHODS),
        }
        for name, vocabulary in vocabularies.items():
            for word in getattr(self.studies, name):
                if word in vocabulary:
                    continue
                near = close_match(word, vocabulary)
                choices = ", ".join(vocabulary)
                raise InputError(
                    f"[studies] {name} names {word!r}, which is unknown{near} "
                    f"Use some of {choices}."
                )

    def _impossible(self) -> Iterator[str]:
        """Yield what no study can meet, whatever it asks for."""
        allowed = self.studies
        for name in ("guarantees", "trust"):
            if not getattr(allowed, name):
                yield f"[studies] {name} = [] allows none: name some"

        bounds = {name: getattr(self.budget, name) for name in _BOUNDS}
        finite_names = [name for name, value in bounds.items() if value != inf]
        if "dp" not in allowed.guarantees and finite_names:
            name = finite_names[0]
            guarantees = _few(allowed.guarantees)
            yield (
                f"[studies] guarantees = {guarantees} leaves out 'dp', and [budget] "
                f"{name} = {bounds[name]} is finite, which only 'dp' keeps: "
                "give inf, or add 'dp'"
            )

        # A roster of one takes no sum with others, so the default of two does not speak of it.
        cohort = allowed.smallest_cohort
        roster = allowed.smallest_roster
        if cohort > max(roster, 2):
            yield (
                f"[studies] smallest_cohort = {cohort} is more than "
                f"smallest_roster = {roster}, and a sum has no more parties than "
                f"the roster: raise smallest_roster to {cohort}"
            )
        methods = allowed.methods
        if methods and not any(self._may_run(name) for name in methods):
            yield (
                f"[studies] methods = {_few(methods)} have other trust models than "
                f"trust = {_few(allowed.trust)}: add one of theirs"
            )

    def _may_run(self, name: str) -> bool:
        """Return whether a method's trust model is allowed, at its usual settings."""
        trust = METHODS[name].method.trust
        # A curator is the party that holds all rows, of whom no policy speaks; see `TRUST`.
        return trust == "curator" or trust in self.studies.trust

    @property
    def limit(self) -> Budget:
        """The most that one row may cost over the life of the ledger; see `Ledger`."""
        return self._of_a_row(self.budget.epsilon_in_all)

    def _of_a_row(self, person_epsilon: float) -> Budget:
        """Return the bound of a row from which this bound of a person follows."""
        rows = self.budget.rows_per_person
        delta = self.budget.delta
        if rows == 1 or person_epsilon == inf:
            return Budget(person_epsilon, delta)
        # Vadhan 2017, lemma 2.2, solved for the e and d of a row: k e is the person's epsilon.
        row_epsilon = person_epsilon / rows
        row_delta = delta * expm1(row_epsilon) / expm1(person_epsilon)
        return Budget(row_epsilon, row_delta)

    def check(
        self,
        study: Study,
        schema: Schema,
        synth: MethodSettings,
        entries: Sequence[Entry] = (),
        columns: Sequence[str] = (),
        others: Sequence[Budget | Charged] = (),
    ) -> None:
        """Refuse a study that this policy does not allow, before it begins and at every stage.

        Args:
            study: The party's own copy of the study.
            schema: Its columns.
            synth: Its method.
            entries: All entries of the study's ledger.
            columns: What the study takes of this party, where parties hold different columns.
            others: What each other study of this party may spend, by its account.

        Raises:
            InputError: Naming every rule that is broken, the value and the bound.
        """
        # All rules, so that a study and its owner need not be asked once for each.
        rules = self._broken(study, schema, synth, entries, columns, others)
        sentences = " ".join(rules)
        if sentences:
            name = study.study.name
            raise InputError(
                f"{POLICY_FILE} does not allow study {name!r}. Nothing was released. "
                + sentences
            )

    def check_name(self, study: Study, name: str, earlier_name: str) -> None:
        """Refuse a study that lists this party by a name that it does not have.

        Where the policy lists no names, that is a study in which another party has the name of this
        one: two keys were swapped, and this party's columns and ledger would count as the other's.

        Args:
            study: The party's own copy of the study.
            name: How the study lists this party's key.
            earlier_name: How the latest study before it did; empty for the first one.

        Raises:
            InputError: Naming both names, and what to do.
        """
        allowed = self.studies.names
        if allowed and name not in allowed:
            excess = (
                f"[studies] names = {_few(allowed)}: it lists this party as {name!r}"
            )
        elif not allowed and name != earlier_name and earlier_name in study.names:
            excess = (
                f"It lists this party as {name!r}, and another one as {earlier_name!r}, which was "
                "this party's name in the study before"
            )
        else:
            return
        raise InputError(
            f"{POLICY_FILE} does not allow study {study.study.name!r}. Nothing was released. "
            f"{excess}. If keys were swapped, ask the coordinator for a new folder; if {name!r} is "
            f"right, name it in [studies] names."
        )

    def _broken(
        self,
        study: Study,
        schema: Schema,
        synth: MethodSettings,
        entries: Sequence[Entry],
        columns: Sequence[str],
        others: Sequence[Budget | Charged],
    ) -> Iterator[str]:
        """Yield every rule that a study breaks, in a sentence; arguments as of `check`."""
        yield from self._forbidden_method(synth)
        yield from self._forbidden_columns(study, schema, synth, columns)
        yield from self._forbidden_roster(study, synth)
        if study.alignment is not None and not self.studies.alignment:
            ids = _few(study.alignment.on)
            yield f"[studies] alignment = false: it compares {ids} of rows."
        # A method for split columns shares them unless its settings say that it does not.
        is_split = synth.method.split == "columns"
        is_joined = is_split and shares_columns(synth)
        if is_joined and not self.studies.shared_columns:
            yield (
                "[studies] shared_columns = false: it puts synthetic columns of all parties "
                "together."
            )
        yield from self._beyond(study, entries, others)

    def _forbidden_method(self, synth: MethodSettings) -> Iterator[str]:
        """Yield what is not allowed of a method: it as such, its guarantee, its trust model."""
        allowed = self.studies
        info = synth.info
        name = synth.method.name
        if allowed.methods and name not in allowed.methods:
            yield f"[studies] methods = {_few(allowed.methods)}: it runs {name!r}."
        if info.guarantee not in allowed.guarantees:
            yield (
                f"[studies] guarantees = {_few(allowed.guarantees)}: {info.title} has the "
                f"guarantee {info.guarantee!r}."
            )
        if info.trust in TRUST and info.trust not in allowed.trust:
            meaning = _TRUST_WORDS[info.trust]
            accepted = _few([*allowed.trust, info.trust])
            yield (
                f"[studies] trust = {_few(allowed.trust)}: {info.title} has the "
                f"trust model {info.trust!r}, {meaning}. To accept that, write "
                f"trust = {accepted} (docs/concepts/threat-model.md has more)."
            )

    def _forbidden_columns(
        self,
        study: Study,
        schema: Schema,
        synth: MethodSettings,
        columns: Sequence[str],
    ) -> Iterator[str]:
        """Yield the columns that a study uses and this policy does not name."""
        allowed = self.studies.columns
        names = [column.name for column in schema.coded]
        if synth.method.split == "columns" and columns:
            names = list(columns)
        # Ids to align by are compared, and so they are used.
        if study.alignment is not None:
            names += study.alignment.on
        # Without names in the policy all columns are allowed.
        forbidden = [name for name in names if name not in allowed]
        if allowed and forbidden:
            yield f"[studies] columns = {_few(allowed)}: it uses {_few(forbidden)}."

    def _forbidden_roster(self, study: Study, synth: MethodSettings) -> Iterator[str]:
        """Yield what is too small: the study's roster, or a sum over parties."""
        allowed = self.studies
        party_count = len(study.names)
        if party_count < allowed.smallest_roster:
            names = ", ".join(study.names)
            yield (
                f"[studies] smallest_roster = {allowed.smallest_roster}: "
                f"it has {party_count}, {names}."
            )
        # None for a method that takes no sum over parties.
        cohort = smallest_sum(synth, party_count)
        if cohort is not None and cohort < allowed.smallest_cohort:
            parties = count_of(cohort, "party", "parties")
            yield (
                f"[studies] smallest_cohort = {allowed.smallest_cohort}: "
                f"at its settings a sum may be over {parties}."
            )

    def _beyond(
        self, study: Study, entries: Sequence[Entry], others: Sequence[Budget | Charged]
    ) -> Iterator[str]:
        """Yield what is too dear: the study's own budget, and that beside all others."""
        budget = promised(study)
        runs = Job(study.terms(), run=study.run_name).runs
        per_study = self._of_a_row(self.budget.epsilon_per_study)
        in_all = self.limit
        run_events = [entry.event for entry in entries if entry.run in runs]
        earlier_events = [entry.event for entry in entries if entry.run not in runs]

        if per_study.private and budget.epsilon > per_study.epsilon:
            epsilons = statements_of(study)
            label = max(epsilons, key=epsilons.__getitem__)
            excess = f"its epsilon {label} is {budget.epsilon}"
            yield self._too_much("epsilon_per_study", excess, per_study)

        # A delta that is too large for one study is too large for all of them: said once.
        if (per_study.private or in_all.private) and budget.delta > per_study.delta:
            yield self._too_much("delta", f"its delta is {budget.delta}", per_study)
        elif in_all.private:
            yield from self._beside(budget, others, earlier_events)

        # What the ledger holds may be more than the study promises now.
        if per_study.private:
            spent_epsilon = epsilon(run_events, per_study.delta)
            if spent_epsilon > per_study.epsilon:
                excess = f"it has spent {spent_epsilon} of a row"
                yield self._too_much("epsilon_per_study", excess, per_study)

    def _beside(
        self,
        budget: Budget,
        others: Sequence[Budget | Charged],
        events: Sequence[Event],
    ) -> Iterator[str]:
        """Yield what the bound in all forbids, by adding up.

        Args:
            budget: What the study may cost.
            others: What other studies may cost.
            events: What the study's own ledger has of other runs.
        """
        # Dwork & Roth 2014, theorem 3.16: epsilons add up, and so do deltas. Events of other runs
        # have no delta of their own, and get what the studies leave.
        added_delta = sum(cost.delta for cost in (budget, *others))
        remaining_delta = self.limit.delta - added_delta
        if remaining_delta < 0 or (events and remaining_delta == 0):
            studies = count_of(len(others) + 1, "study", "studies")
            excess = f"with it, the deltas of {studies} add up to {added_delta}"
            yield self._too_much("delta", excess, self.limit)
            return
        earlier_epsilon = sum((cost.epsilon for cost in others), 0.0)
        if events:
            earlier_epsilon += epsilon(events, remaining_delta)
        added_epsilon = earlier_epsilon + budget.epsilon
        if added_epsilon > self.limit.epsilon:
            excess = (
                f"{earlier_epsilon} of a row is spent before it, "
                f"and {added_epsilon} would be with it"
            )
            yield self._too_much("epsilon_in_all", excess, self.limit)

    def _too_much(self, field: str, excess: str, bound: Budget) -> str:
        """Say that a study goes beyond a bound.

        Args:
            field: The bound's name in ``[budget]``.
            excess: What is beyond it, in words.
            bound: That of a row, which follows from it.
        """
        rows = self.budget.rows_per_person
        rule = f"{field} = {getattr(self.budget, field)}"
        if field != "delta":
            rule += f" at delta = {self.budget.delta}"
        # What a study is compared with is the bound of a row.
        if rows > 1:
            row_bound = f"epsilon = {bound.epsilon:.4g} at delta = {bound.delta:.4g}"
            rule += f" for {rows} rows of a person, so {row_bound} for one row"
        advice = "Ask for less, or let the owner of this party raise it."
        return f"[budget] {rule}: {excess}. {advice}"


def promised(study: Study) -> Budget:
    """Return what a study may cost a row: its largest statement, as of `plan.statements_of`."""
    most = max(statements_of(study).values())
    return structs.replace(study.terms(), epsilon=most)


_TRUST_WORDS = {
    "secure-sum": "in which the coordinator sees sums over parties alone",
    "mpc": "in which a coordinator that does not follow the protocol can read exact counts",
    "local": "in which all that leaves a party is noisy",
}


def _few(names: Sequence[str]) -> str:
    """Write names as a list of TOML, the first five of many."""
    shown = ", ".join(map(repr, names[:_FEW]))
    if len(names) > _FEW:
        shown += ", ..."
    return f"[{shown}]"


# The file


def read_policy(folder: Path) -> Policy:
    """Read the policy in a party's folder.

    Raises:
        InputError: There is no such file, it is no TOML, or a field is unknown, of the wrong type
            or out of bounds.
    """
    file = folder / POLICY_FILE
    if not file.is_file():
        call = f"siloweave party policy --folder {quote(str(folder))}"
        raise InputError(
            f"there is no {file}, which says what this party allows. "
            f"`{call}` writes one with every field; read it and start again."
        )
    return in_toml(file, _parsed)


def _parsed(data: Mapping[str, Any]) -> Policy:
    """Make a policy from the parsed file; raise InputError for a key or value that is wrong."""
    tables = {"budget": Spending, "studies": Allowed}
    check_tables(data, list(tables), tables, "the policy")
    return converted(data, Policy)


def write_policy(folder: Path, study: Study | None = None) -> Path:
    """Write a policy into a party's folder; InputError if there is one.

    It has every field; or it allows just what a study asks for, without the owner's yes, where all
    ends are on one machine.
    """
    file = folder / POLICY_FILE
    if file.exists():
        raise InputError(f"{file} is there already; change it with an editor.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _TEXT
    if study is not None:
        guarantee = study.synthesizer().info.guarantee
        budget = promised(study)
        name = study.study.name
        text = _TRIAL_TEXT.format(name=name, kind=guarantee, budget=budget)
    write_whole(file, text.encode())
    return file


_TRIAL_TEXT = """\
# Written for a trial on one machine: allows study {name!r} and whatever costs no more.
[budget]
epsilon_per_study = {budget.epsilon}
epsilon_in_all = {budget.epsilon}
delta = {budget.delta}
[studies]
guarantees = ["{kind}"]
trust = ["secure-sum", "mpc", "local"]
smallest_roster = 1
smallest_cohort = 1
alignment = true
approval = "auto"
"""
_TEXT = """\
# What this party allows, whatever a study asks for. A study beyond it is refused. This file stays
# here; changes hold from the next start of the party on.

[budget]
# The most that one person may lose, at this delta; what a study asks for is for one row.
epsilon_per_study = 1.0
epsilon_in_all = 3.0       # in all studies: their epsilons add up, and so do their deltas,
delta = 1e-5               # to this at most, which is far below 1 / number of people
rows_per_person = 1        # the most rows that one person has here: two rows make it cost twice
# Methods without a guarantee, such as "silofuse", need epsilon = inf in both lines above and
# "none" below: after one of them, no finite epsilon holds for this ledger any more.

[studies]
guarantees = ["dp"]        # also "partial", "refuted", "none": see `siloweave list`
trust = ["secure-sum", "local"]  # SecureTwoRound and DistAIM need "mpc", too: a coordinator that
#                          # does not follow the protocol can then read exact counts of your rows
#                          # (docs/concepts/threat-model.md)
methods = []               # names that `siloweave list` shows; all that have such a guarantee if []
columns = []               # of this party's tables that may be used; all of the study's if []
names = []                 # by which a study may list this party. If [], a study is refused in
#                          # which another has the name that this party had in the study before
smallest_roster = 2        # fewest parties
smallest_cohort = 2        # fewest parties of any sum that a study may ask for
alignment = false          # whether rows may be compared by ids to find those that all have
shared_columns = true      # whether synthetic columns may be put together with those of others,
#                          # where parties hold different columns
results = false            # whether the synthetic table and the public report are stored here
#                          # at the end; no table is sent where columns stay with their parties
approval = "by hand"       # the owner runs `siloweave party plan` and `siloweave party approve`
#                          # for every study; "auto" takes part in all that this file allows
"""
