"""Small studies of six methods, each made of the folder of forty rows of two parties.

Each function turns the folder's study into one of its method, and gives the number of questions
that a party is asked at least.
"""

import subprocess
import sys

from tests.app.processes import small

_FLAIM = 'name = "flaim"\nrounds = 2\nparticipation = 1.0\nbins = 4'
_HALVES = """\
[study]
name = "columns"

[schema]
file = "schema.json"

{}
[[parties]]
name = "north"
data = "north.csv"
columns = ["age", "sex"]

[[parties]]
name = "south"
data = "south.csv"
columns = ["job"]
"""


def two_round(folder):
    small(folder)
    return 4


def flaim(folder):
    return 7


def fed_tgan(folder):
    settings = "rounds = 2\nbatch = 20\npac = 2\ngenerator = [8]\ncritic = [8]"
    folder.replace("study.toml", _FLAIM, f'name = "fed_tgan"\n{settings}')
    folder.replace("study.toml", "epsilon = 1", "epsilon = inf")
    return 3


def halved(folder, method, budget=""):
    """Two parties with different columns of forty people."""
    rows = [line.split(",") for line in (folder.path / "north.csv").read_text().split()]
    for name, columns in {"north": (0, 1), "south": (2,)}.items():
        lines = [",".join(row[i] for i in columns) for row in rows]
        folder.write(f"{name}.csv", "\n".join([*lines, ""]))
    folder.write("study.toml", _HALVES.format(f"[method]\n{method}\n{budget}"))


def silofuse(folder):
    settings = "steps = 3\nbatch = 16\nhidden = [8]\nembed = 8\ntimesteps = 5"
    halved(folder, f'name = "silofuse"\ntarget = "sex"\n[method.diffusion]\n{settings}')
    return 3


def vertigan(folder):
    settings = "noise = 4\ntrunk = [8]\nhead = [8]\ncritic = [4]\nbatch = 16\nmade = 8\n"
    settings += "rounds = 3\ncritic_steps = 2\nfinest_bins = 8"
    halved(folder, f'name = "vertigan"\n{settings}', "[budget]\nepsilon = 4\ndelta = 1e-5\n")
    return 4


def secure_two_round(folder):
    budget = "[budget]\nepsilon = 1\ndelta = 1e-5\n"
    halved(folder, 'name = "secure_two_round"\nbins = 4', budget)
    return 4


STUDIES = (two_round, flaim, silofuse, fed_tgan, vertigan, secure_two_round)


_RUN = """
import sys
from pathlib import Path
from siloweave.app.run import execute
from siloweave.app.study import Study
execute(Study.load(Path(sys.argv[1])), noise="seeded")
"""


def here(folder):
    """The rows of the same study in one process, whose results are in the folder `run`.

    A new one, as the ends are: by the time that tests/conftest.py says how matrix products are to
    be added up, pytest may have loaded what adds them up otherwise.
    """
    subprocess.run([sys.executable, "-c", _RUN, str(folder.path)], check=True)
    return (folder.path / "run" / "synthetic.csv").read_text()
