"""policy.toml: what it takes, and what a party refuses by it."""

import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_in

from siloweave.app.cli import main
from siloweave.app.network import studies_below
from siloweave.app.plan import statements_of
from siloweave.app.policy import POLICY_FILE, Policy, promised, read_policy, write_policy
from siloweave.app.study import Study
from siloweave.errors import BudgetError, InputError
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema

SCHEMA = Schema(
    (Column("age", "integer", low=0, high=99), Column("ill", "boolean"))
).with_fallbacks()
TEXT = """\
[study]
name = "admissions"
[schema]
file = "schema.json"
[budget]
epsilon = {epsilon}
delta = {delta}
[method]
name = "{method}"
[[parties]]
name = "north"
data = "north.csv"
[[parties]]
name = "south"
data = "south.csv"
"""


def study_in(path: Path, method="two_round", epsilon="1.0", delta="1e-5", more="") -> Study:
    (path / "schema.json").write_text(SCHEMA.to_json())
    (path / "study.toml").write_text(
        TEXT.format(method=method, epsilon=epsilon, delta=delta) + more
    )
    return Study.load(path)


def policy_in(path: Path, **changes: str) -> Policy:
    """The policy that is written, with other values of some fields."""
    file = write_policy(path)
    lines = file.read_text().splitlines()
    for name, value in changes.items():
        (place,) = [i for i, line in enumerate(lines) if line.startswith(f"{name} = ")]
        lines[place] = f"{name} = {value}"
    file.write_text("\n".join(lines))
    return read_policy(path)


def refusal(path: Path, study: Study, entries=(), own=(), **changes: str) -> str:
    """What the policy says of a study; empty where it allows it."""
    try:
        policy_in(path, **changes).check(study, *study.checked(), entries, own)
    except InputError as error:
        return str(error)
    return ""


def entries_of(run: str, *sigmas: float):
    ledger = Ledger("north", limit=Budget(math.inf, 1e-6))
    for i, sigma in enumerate(sigmas):
        event = Gaussian(sigma=sigma, sensitivity=1.0)
        ledger.charge(event, run=run, step=str(i), what="w", to="c")
    return ledger.entries


def test_the_file_that_is_written_holds_every_field_at_its_default(tmp_path):
    file = write_policy(tmp_path / "party")
    assert read_policy(tmp_path / "party") == Policy()
    assert file.stat().st_mode & 0o777 == 0o600
    text = tomllib.loads(file.read_text())
    for table, kind in (("budget", Policy().budget), ("studies", Policy().studies)):
        assert list(text[table]) == list(kind.__struct_fields__)
    with pytest.raises(InputError, match="is there already"):
        write_policy(tmp_path / "party")


def test_a_party_without_a_policy_is_shown_how_to_write_one(tmp_path):
    with pytest.raises(InputError, match="siloweave party policy --folder"):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[budget]\nepsilon_in_al = 2", r"\[budget\] epsilon_in_al is unknown; did you mean"),
        ("[budgets]", r"the policy budgets is unknown; did you mean 'budget'"),
        ("[budget]\ndelta = 0.0", r"\[budget\] delta=0.0 must be a number in \(0, 1\)"),
        ("[budget]\nepsilon_per_study = nan", r"epsilon_per_study=nan must be"),
        ("[budget]\nrows_per_person = 0", r"rows_per_person=0 must be a whole number, 1 or more"),
        ("[studies]\nmethods = ['flam']", r"\[studies\] methods names 'flam'.*mean 'flaim'"),
        ("[studies]\nguarantees = ['all']", r"\[studies\] guarantees names 'all'"),
        ("[studies]\nalignment = 1", r"\[studies\] alignment: must be true or false"),
        ("[studies]\napproval = 'never'", r"\[studies\] approval: "),
        ("[studies]\nsmallest_cohort = 0", r"\[studies\] smallest_cohort=0 must be a whole number"),
        ("[studies]\ntrust = ['curator']", r"\[studies\] trust names 'curator'"),
        ("[studies]\ntrust = []", r"trust = \[\] allows none.*so no study can meet this policy"),
        ("[studies]\nguarantees = []", r"guarantees = \[\] allows none"),
        (
            "[studies]\nguarantees = ['none']",
            r"leaves out 'dp', and \[budget\] epsilon_per_study =",
        ),
        ("[studies]\nsmallest_cohort = 3", r"smallest_cohort = 3 is more than smallest_roster = 2"),
        ("[studies]\nmethods = ['distaim']", r"methods = \['distaim'\] have other trust models"),
        ("[budget", "is not TOML"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, text, error):
    (tmp_path / POLICY_FILE).write_text(text)
    with pytest.raises(InputError, match=error):
        read_policy(tmp_path)


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        ("methods", '["flaim"]', "methods = ['flaim']: it runs 'two_round'"),
        ("trust", '["local"]', "trust = ['local']: TwoRound has the trust model 'secure-sum', in"),
        ("columns", '["age"]', "columns = ['age']: it uses ['ill']"),
        ("smallest_roster", "3", "smallest_roster = 3: it has 2, north, south"),
        ("epsilon_per_study", "0.5", "epsilon_per_study = 0.5 at delta = 1e-05: its epsilon of a"),
        ("epsilon_in_all", "0.5", "epsilon_in_all = 0.5 at delta = 1e-05: 0.0 of a row is spent"),
        ("delta", "1e-6", "delta = 1e-06: its delta is 1e-05"),
        ("rows_per_person", "2", "for 2 rows of a person, so epsilon = 0.5 at delta = "),
    ],
)
def test_each_rule_refuses_and_names_itself(tmp_path, rule, value, said):
    study = study_in(tmp_path)
    assert refusal(tmp_path / "wide", study) == ""
    found = refusal(tmp_path / "narrow", study, **{rule: value})
    assert said in found
    assert "Nothing was released" in found


def test_a_refused_trust_model_says_what_to_write_and_what_that_accepts(tmp_path):
    """A coordinator's questions of DistAIM are refused unless the owner has added "mpc"."""
    study = study_in(tmp_path, method="distaim")
    said = refusal(tmp_path / "usual", study)
    assert "a coordinator that does not follow the protocol can read exact counts" in said
    written = re.search(r"write trust = (\[.*?\]) \(docs/concepts/threat-model\.md", said)
    assert tomllib.loads(f"trust = {written[1]}")["trust"] == ["secure-sum", "local", "mpc"]
    assert (Path(__file__).parents[2] / "docs/concepts/threat-model.md").is_file()
    assert refusal(tmp_path / "wide", study, trust=written[1]) == ""
    assert '"mpc"' in (tmp_path / "usual" / POLICY_FILE).read_text()


@pytest.mark.parametrize("method", ["distaim", "two_round"])
def test_a_trial_allows_the_trust_model_of_its_study(tmp_path, method):
    study = study_in(tmp_path, method=method)
    write_policy(tmp_path / "trial", study)
    read_policy(tmp_path / "trial").check(study, *study.checked())


def test_a_guarantee_that_is_not_allowed_is_named(tmp_path):
    wide = {"epsilon_per_study": "inf", "epsilon_in_all": "inf"}
    found = refusal(tmp_path / "p", study_in(tmp_path), guarantees='["partial"]', **wide)
    assert "guarantees = ['partial']: TwoRound has the guarantee 'dp'" in found


@pytest.mark.parametrize(
    ("settings", "smallest"),
    [
        ('name = "flaim"', 2),  # participation of a tenth, and never one alone
        ('name = "flaim"\nparticipation = 1.0', 4),
        ('name = "flaim"\nrounds = 8\ncap = 1', 1),
        ('name = "distaim"\ntolerated = 1', 2),
        ('name = "two_round"\ndropouts = 1', 3),
        ('name = "two_round"', 4),
    ],
)
def test_the_smallest_sum_follows_from_the_studys_settings(tmp_path, settings, smallest):
    more = "".join(f'[[parties]]\nname = "{n}"\ndata = "{n}.csv"\n' for n in ("east", "west"))
    study_in(tmp_path, more=more)
    text = (tmp_path / "study.toml").read_text().replace('name = "two_round"', settings)
    (tmp_path / "study.toml").write_text(text)
    study = Study.load(tmp_path)
    wide = {"trust": '["secure-sum", "mpc"]', "smallest_roster": "5"}
    for bound in (smallest, smallest + 1):
        said = refusal(tmp_path / str(bound), study, **wide, smallest_cohort=str(bound))
        assert "smallest_roster = 5: it has 4" in said
        assert (f"a sum may be over {smallest} part" in said) == (bound > smallest)


def test_a_method_that_takes_no_sum_over_parties_is_not_held_to_a_smallest(tmp_path):
    study = study_in(tmp_path, "vertimrf")
    assert refusal(tmp_path / "p", study, smallest_roster="9", smallest_cohort="9").count("[") == 1


def split_by_columns(path, method, more=""):
    """A study of two parties that hold the same people."""
    study_in(path, method, delta="1e-6")
    text = (path / "study.toml").read_text()
    for name, column in (("north", "age"), ("south", "ill")):
        text = text.replace(f'data = "{name}.csv"', f'columns = ["{column}"]')
    (path / "study.toml").write_text(text + more)
    return Study.load(path)


@pytest.mark.parametrize(("method", "largest"), [("secure_two_round", 1.4512), ("vertigan", 1.605)])
def test_the_bound_is_held_against_the_largest_statement_to_whomever(tmp_path, method, largest):
    """What `check` states towards another party is above the study's own epsilon of 1."""
    study, wide = split_by_columns(tmp_path, method), {"trust": '["mpc", "local"]'}
    stated = statements_of(study)
    assert stated["of a row"] == 1.0
    most = stated["of a row towards another party"]
    assert most == promised(study).epsilon == pytest.approx(largest, abs=0.01)
    found = refusal(tmp_path / "a", study, **wide)
    assert "epsilon_per_study = 1.0 at delta = 1e-05: its epsilon of a row towards another" in found
    assert str(most) in found
    assert refusal(tmp_path / "b", study, **wide, epsilon_per_study="2.2") == ""


def test_a_unit_at_several_parties_is_held_to_the_bound_with_all_of_them(tmp_path):
    more = 'unit = "id"\nrows_per_unit = 2\nparties_per_unit = 2\n'
    study_in(tmp_path)
    (tmp_path / "schema.json").write_text(Schema((*SCHEMA.columns, Column("id", "id"))).to_json())
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace("delta = 1e-5\n", f"delta = 1e-5\n{more}"))
    study = Study.load(tmp_path)
    stated = statements_of(study)
    assert stated["of a id"] == 1.0
    assert 2.0 < stated["of a id with rows at 2 parties"] == promised(study).epsilon < 2.3


def test_all_broken_rules_are_named_at_once(tmp_path):
    found = refusal(tmp_path / "p", study_in(tmp_path), smallest_roster="3", columns='["age"]')
    assert "smallest_roster" in found
    assert "columns" in found


def test_a_method_without_a_guarantee_needs_three_lines(tmp_path):
    study = study_in(tmp_path, "fed_tgan", "inf")
    two = {"guarantees": '["none"]', "epsilon_per_study": "inf"}
    assert "guarantees" in refusal(tmp_path / "a", study)
    assert "epsilon_in_all" in refusal(tmp_path / "b", study, **two)
    assert refusal(tmp_path / "c", study, **two, epsilon_in_all="inf") == ""


def test_split_columns_may_stay_apart_and_only_the_partys_own_count(tmp_path):
    def text(shared: str) -> str:
        folder = tmp_path / shared
        folder.mkdir()
        study = study_in(folder, "silofuse", "inf")
        return Study.load(folder), replace(study.synthesizer(), shared=shared == "true")

    wide = {"guarantees": '["none"]', "epsilon_per_study": "inf", "epsilon_in_all": "inf"}
    policy = policy_in(tmp_path / "p", **wide, shared_columns="false", columns='["age"]')
    for shared in ("true", "false"):
        study, synth = text(shared)
        if shared == "false":
            policy.check(study, SCHEMA, synth, (), ["age"])
            continue
        with pytest.raises(InputError, match="shared_columns = false"):
            policy.check(study, SCHEMA, synth, (), ["age"])
    with pytest.raises(InputError, match=r"it uses \['ill'\]"):
        policy.check(study, SCHEMA, synth, (), ["ill"])


def test_alignment_is_refused_unless_allowed(tmp_path):
    more = '[alignment]\non = ["id"]\n'
    study = split_by_columns(tmp_path, "secure_two_round", more=more)
    wide = {"trust": '["mpc"]', "epsilon_per_study": "2.0"}
    assert "alignment = false: it compares ['id']" in refusal(tmp_path / "a", study, **wide)
    assert refusal(tmp_path / "b", study, **wide, alignment="true") == ""
    wide |= {"alignment": "true", "columns": '["age"]'}
    found = refusal(tmp_path / "c", study, (), ["age"], **wide)
    assert "it uses ['id']" in found


def test_the_bound_in_all_counts_what_another_run_in_the_ledger_spent(tmp_path):
    study = study_in(tmp_path, delta="1e-6")
    before = entries_of("another study", 3.0)
    spent = epsilon([entry.event for entry in before], 1e-5 - 1e-6)
    assert 1.0 < spent < 2.0
    assert refusal(tmp_path / "a", study, before) == ""  # 3.0 in all
    found = refusal(tmp_path / "b", study, before, epsilon_in_all="1.7")
    assert f"{spent} of a row is spent before it" in found
    assert refusal(tmp_path / "c", study, entries_of(study.run_name, 5.0)) == ""
    assert "deltas of 1 study add up" in refusal(tmp_path / "d", study_in(tmp_path), before)


def test_epsilons_and_deltas_of_studies_add_up(tmp_path):
    study, policy = study_in(tmp_path, delta="4e-6"), policy_in(tmp_path / "p", delta="1e-5")
    one = Budget(1.0, 3e-6)
    policy.check(study, *study.checked(), others=[one, one])
    with pytest.raises(InputError, match=r"3\.0 of a row is spent before it, and 4\.0 would be"):
        policy.check(study, *study.checked(), others=[replace_in(one, delta=1e-7)] * 3)
    with pytest.raises(InputError, match="the deltas of 4 studies add up to 1"):
        policy.check(study, *study.checked(), others=[replace_in(one, epsilon=0.1)] * 3)


def test_what_lies_below_a_home_is_proposed_where_its_account_is_missing(tmp_path):
    flu = tmp_path / "2026" / "flu"
    flu.mkdir(parents=True)
    study_in(flu, epsilon="2.0", delta="1e-6")
    assert studies_below(tmp_path) == []
    with Ledger("north", path=flu / "ledger.jsonl", limit=Budget(2.0, 1e-6)) as ledger:
        assert studies_below(tmp_path) == [(2.0, 1e-6)]  # it may still continue
        ledger.charge(Gaussian(sigma=3.0, sensitivity=1.0), run="r", step="0", what="w", to="c")
        spent = ledger.epsilon()
    study_in(flu, epsilon="0.1", delta="1e-6")  # made anew, in the same folder
    (counted,) = studies_below(tmp_path)
    assert counted.epsilon == spent > 1.0


def test_a_study_whose_guarantee_fails_counts_as_infinite(tmp_path):
    study = study_in(tmp_path, "vertimrf")
    assert promised(study) == study.terms()
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(text.replace('"vertimrf"', '"vertimrf"\nencoding = "fm"'))
    assert promised(Study.load(tmp_path)).epsilon == math.inf


def test_what_this_study_has_spent_is_held_to_its_own_bound(tmp_path):
    study = study_in(tmp_path)
    assert "it has spent" in refusal(tmp_path / "a", study, entries_of(study.run_name, 3.0))
    assert "it has spent" in refusal(tmp_path / "b", study, entries_of(f"{study.run_name}-bins", 3))


@pytest.mark.parametrize("rows", [2, 5])
def test_the_bound_of_a_row_gives_that_of_a_person(tmp_path, rows):
    policy = policy_in(tmp_path / "p", rows_per_person=str(rows))
    one = policy.limit
    # k steps from table to neighbour: exp(epsilon) multiplies what came before at each
    excess = 0.0
    for _ in range(rows):
        excess = math.exp(one.epsilon) * excess + one.delta
    assert rows * one.epsilon == pytest.approx(3.0)
    assert excess == pytest.approx(1e-5)


def test_a_ledger_with_the_limit_refuses_what_passes_it(tmp_path):
    limit = policy_in(tmp_path / "p", epsilon_in_all="1.0").limit
    ledger = Ledger("north", limit=limit)
    ledger.charge(Gaussian(sigma=5.0, sensitivity=1.0), run="a", step="0", what="w", to="c")
    with pytest.raises(BudgetError, match="limit of 1"):
        ledger.charge(Gaussian(sigma=5.0, sensitivity=1.0), run="b", step="0", what="w", to="c")


def test_the_command_writes_a_policy_once_and_checks_it_then(tmp_path, capsys):
    call = ["party", "policy", "--folder", str(tmp_path / "p"), "--json"]
    assert main(call) == 0
    assert '"written": true' in capsys.readouterr().out
    assert main(call) == 0
    assert '"written": false' in capsys.readouterr().out
    (tmp_path / "p" / POLICY_FILE).write_text("[budget]\ndelta = 2.0")
    assert main(call) == 2
    assert "delta=2.0 must be a number in (0, 1)" in capsys.readouterr().err
