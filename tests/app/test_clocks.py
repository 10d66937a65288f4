"""Ends in processes of their own, of which one has a clock that is an hour ahead."""

import re
from datetime import datetime

import pytest

from siloweave.app.status_facts import status_of
from tests.app.processes import Ends, first, over_network, provisioned, small, told
from tests.app.studies import here
from tests.federation.engines import free_port

HOUR = 3600
CLOCK = f"""
import datetime
import time


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds={HOUR})


real, datetime.datetime = time.time, Clock
time.time = lambda: real() + {HOUR}
"""
"""What an end and all that it starts run first; TLS keeps the machine's clock."""


@pytest.mark.engine
@pytest.mark.parametrize("whose", ["north", pytest.param("coordinator", marks=pytest.mark.slow)])
def test_over_a_network_a_clock_that_is_an_hour_off_ends_both_ends_and_is_named(whose, folder):
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    small(folder)
    made = provisioned(folder, "127.0.0.1")
    party, others = ("+", "ahead of") if whose == "north" else ("-", "behind")
    off = r"3,?(599|60\d|61\d)"
    within = {whose: first(folder, CLOCK)}
    with Ends(folder.path, made, over_network(free_port()), wait=40, within=within) as ends:
        ends.start_all()
        assert ends.over("north") == 2
        here = told(ends.said("north"))
        assert re.search(rf"clock is \{party}{off} s from .* set both clocks", here), here
        assert ends.ended() == 2
        there = told(ends.said("coordinator"))
        noticed = rf"its clock is {off} s {others} this machine's; set both"
        assert re.search(rf"party 'north' did not answer .* Noticed: {noticed}", there), there
        if whose == "north":
            assert ends.running["south"].poll() is None  # its clock is right
        else:
            assert ends.over("south") == 2
    found = {one.name: one for one in status_of(made["coordinator"]).parties}
    assert re.search(noticed, found["north"].refused)
    assert not (made["coordinator"] / "run" / "run.json").exists()


@pytest.mark.slow
def test_over_files_a_clock_that_is_an_hour_off_changes_nothing(folder):
    small(folder)
    made, spool = provisioned(folder), ["--spool", str(folder.path / "spool")]
    within = {"north": first(folder, CLOCK)}
    with Ends(folder.path, made, lambda name: spool, within=within) as ends:
        ends.start_all()
        assert ends.ended() == 0, ends.said("coordinator")
        logs = [(made[name] / "log.txt").read_text() for name in ("north", "south")]
        north, south = (datetime.fromisoformat(log[:19]) for log in logs)
        assert HOUR - 60 < (north - south).total_seconds() < HOUR + 60
        assert ends.rows() == here(folder)
