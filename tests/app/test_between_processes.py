"""Each end in a process of its own, over files and over a network: the result is that of one."""

import time

import pytest

import siloweave as sw
from siloweave.privacy.ledger import LEDGER_FILE, Ledger
from tests.app.processes import Ends, over_network, provisioned
from tests.app.studies import STUDIES, here
from tests.federation.engines import free_port
from tests.synthesizers.golden import saved

ENGINE = [pytest.mark.engine, pytest.mark.slow]


def check_same(folder, ends):
    """Rows, ledgers, accounts and the model's files, but for what one process alone can state."""
    assert ends.rows() == here(folder)
    ends.check_accounts()
    office, run = ends.made["coordinator"] / "run", folder.path / "run"
    for i, name in enumerate(ends.parties):
        own, mine = ends.made[name] / LEDGER_FILE, run / "parties" / f"{i:04d}" / LEDGER_FILE
        assert (office / "parties" / f"{i:04d}" / LEDGER_FILE).read_bytes() == own.read_bytes()
        paid = [[(e.run, e.step, e.what, e.event) for e in Ledger.read(one).entries]
                for one in (own, mine)]  # fmt: skip
        assert paid[0] == paid[1]
        assert paid[0]
    if (office / "model").exists():
        mine, theirs = (saved(sw.load(one / "model")) for one in (run, office))
        assert {n: d for n, d in theirs.items() if n != "fit.json"}.items() <= mine.items()


@pytest.mark.parametrize("way", [pytest.param("files", marks=pytest.mark.slow),
                                 pytest.param("network", marks=ENGINE)])  # fmt: skip
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_between_processes_is_that_of_one(study, way, folder, capsys):
    if network := way == "network":
        pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    questions, began = study(folder), time.monotonic()
    made, spool = provisioned(folder, *["127.0.0.1"] * network), str(folder.path / "spool")
    travel = over_network(free_port()) if network else lambda name: ["--spool", spool]
    with Ends(folder.path, made, travel) as ends:
        ends.start_all()
        assert ends.ended() == 0, ends.said("coordinator")
        check_same(folder, ends)
        (count,) = {one["messages"] for one in ends.summary()["parties"]}
        assert count >= questions
    with capsys.disabled():
        print(f"\n{study.__name__}, {way}: {count} messages, {time.monotonic() - began:.0f} s")
