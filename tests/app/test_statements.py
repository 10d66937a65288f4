"""What a policy compares and an account is charged covers what a run's ledgers then say."""

import pytest

from siloweave.app.ledgers import find_run
from siloweave.app.plan import statements_of
from siloweave.app.policy import promised
from siloweave.app.run import execute
from siloweave.app.study import Study
from tests.app.studies import flaim, halved, secure_two_round, two_round, vertigan
from tests.app.test_units import with_people

_NETWORK = "batch = 10\nfinest_bins = 4"
_GAN = f"{_NETWORK}\nsteps = 3\ngenerator = [8]\ncritic = [8]"
_DIFFUSION = f"{_NETWORK}\nsteps = 3\nhidden = [8]\nembed = 8\ntimesteps = 5"


def vertimrf(folder):
    halved(
        folder,
        'name = "vertimrf"\n',
        "[budget]\nepsilon = 1\ndelta = 1e-5\nrelation = 'replace_one'\n",
    )


def few_rows(folder):
    """Fewer than a batch, so that every row is in each step."""
    vertigan(folder)
    for name in ("north", "south"):
        head, *rows = (folder.path / f"{name}.csv").read_text().split()
        folder.write(f"{name}.csv", "\n".join([head, *rows[:9], ""]))


def many_rows(folder):
    """Where the accountant's reading towards another party is above that of two changes."""
    vertigan(folder)
    for name in ("north", "south"):
        head, *rows = (folder.path / f"{name}.csv").read_text().split()
        folder.write(f"{name}.csv", "\n".join([head, *rows * 12, ""]))


def at_two_parties(method="two_round", settings="bins = 4", learn=0.0, epsilon=1):
    """A study of people who have rows at both parties."""

    def made(folder):
        with_people(folder)
        folder.replace("study.toml", "epsilon = 1", f"epsilon = {epsilon}")
        folder.replace("study.toml", "rows_per_unit = 2", "rows_per_unit = 2\nparties_per_unit = 2")
        folder.replace(
            "study.toml", 'name = "two_round"\nbins = 4', f'name = "{method}"\n{settings}'
        )
        if learn:
            folder.replace(
                "schema.json", '"categories": ["x", "y"]', '"categories": ["?"], "other": "?"'
            )
            folder.replace("study.toml", "[schema]\n", f"[schema]\nlearn = {learn}\n")

    return made


STUDIES = {
    "two_round": two_round,
    "flaim": flaim,
    "vertimrf": vertimrf,
    "secure_two_round": secure_two_round,
    "vertigan": vertigan,
    "vertigan, few rows": few_rows,
    "vertigan, many rows": many_rows,
    "two_round, people": at_two_parties(),
    "two_round, people, large": at_two_parties(epsilon=6),
    "two_round, people, learned": at_two_parties(settings="", learn=0.3),
    "flaim, people": at_two_parties("flaim", "rounds = 2\nparticipation = 1.0\nbins = 4"),
    "dp_fed_tgan, people": at_two_parties("dp_fed_tgan", _GAN, epsilon=4),
    "dp_fed_tabddpm, people": at_two_parties("dp_fed_tabddpm", _DIFFUSION),
}


@pytest.mark.parametrize("name", STUDIES)
def test_no_run_states_more_than_was_said_before_it(name, folder):
    STUDIES[name](folder)
    study = Study.load(folder.path)
    stated = statements_of(study)
    execute(study, noise="seeded")
    summary = find_run(folder.path / "run")
    said = {
        "towards another party": summary.epsilon_to_parties,
        "with rows at 2 parties": summary.epsilon_at_parties,
    }
    assert summary.epsilon <= stated[f"of a {study.terms().unit}"]
    for whose, value in said.items():
        before = [most for words, most in stated.items() if whose in words]
        assert len(before) == (value is not None), whose
        if value is not None:
            assert summary.epsilon < value <= before[0]
    # This is what a policy's bounds are held against, and what the account has.
    assert promised(study).epsilon == max(stated.values())
