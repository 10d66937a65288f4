"""What a coordinator is sent of a party's errors: no value of a row, whichever handler fails."""

import copy
import shutil
from itertools import cycle

import pytest

from siloweave import errors
from siloweave.core.run import run_study
from siloweave.errors import NAMES_NO_ROW, SiloweaveError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.sealed import SealedCarrier
from siloweave.federation.messages import Envelope
from siloweave.federation.site import MemoryStore
from siloweave.privacy.ledger import Ledger
from tests.synthesizers.networked import Framed, ends, jobs_of
from tests.synthesizers.test_network import cases
from tests.synthesizers.test_network_faults import STUDY, asked, facts_of
from tests.synthesizers.test_visibility import CASES

CANARY = "canary-017-4711.25"
KINDS = (
    errors.DataError,
    errors.SchemaError,
    errors.InputError,
    errors.RosterError,
    errors.CapacityError,
    KeyError,
    ValueError,
    MemoryError,
)


class Trap:
    """Rows whose every use fails, with a text that names one."""

    def __init__(self, kind):
        self.__dict__["kind"] = kind

    def __getattr__(self, name):
        raise self.kind(f"column 'age': row 3 holds {CANARY}")

    __len__ = __iter__ = __getitem__ = lambda self, *_: self.age


class Above(MemoryStore):
    """What is put here hides what a store below has, which stays as it is."""

    def __init__(self, below):
        super().__init__()
        self.below = below

    def get(self, name):
        return super().get(name) or self.below.get(name)


class Trapped(Framed):
    """Before a party is asked something for the first time, a copy of it is, whose rows fail."""

    def __init__(self, seals, hosts, folder):
        super().__init__(seals, hosts)
        self.folder, self.kinds, self.seen, self.refusals = folder, cycle(KINDS), set(), []

    def answered(self, name, question):
        host, own = self.hosts[name]
        opened = own.open(question, self.seals.name)
        envelope = messages.decode(opened.data, Envelope)
        host._begin_from(envelope.run, opened.facts)
        tag = messages.msgspec.msgpack.decode(envelope.body)["type"]
        if (envelope.run, tag) not in self.seen:
            self.seen.add((envelope.run, tag))
            self.fail(host, envelope.run, opened)
        return super().answered(name, question)

    def fail(self, host, run, opened):
        site, handlers = host._answering(run)
        file = self.folder / f"{len(self.seen)}.jsonl"
        shutil.copy(site.ledger.path, file)
        trap = copy.copy(site)
        trap.rows, trap.memo, trap._store = Trap(next(self.kinds)), {}, Above(site._store)
        limit, identity = site.ledger.limit, host.job.identity
        with Ledger(site.name, path=file, limit=limit, identity=identity) as own:
            trap.ledger = own
            host._sites[run] = trap, handlers
            try:
                host.reply(opened)
            except SiloweaveError as error:
                self.refusals.append(error)
            finally:
                host._sites[run] = site, handlers


@cases("two_round", "flaim that learns", "secure_two_round", "distaim")
def test_no_error_of_a_handler_names_a_value_of_a_row(name, tmp_path, caplog):
    with ends(CASES[name], tmp_path, STUDY) as (setup, seals, hosts):
        carrier = Trapped(seals, hosts, tmp_path)
        job = jobs_of(CASES[name], folder=tmp_path / "office", rows=9)
        run_study(setup, job, SealedCarrier(carrier, seals), study=STUDY)
    assert carrier.refusals
    for error in carrier.refusals:
        assert isinstance(error, NAMES_NO_ROW)
        assert CANARY not in str(error)
    assert CANARY not in caplog.text  # nor does the party's own log
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert not [one for one in files if CANARY.encode() in one.read_bytes()]


@pytest.mark.parametrize("kind", [*KINDS, WireError, errors.StudyError])
def test_an_error_travels_as_its_class_says(kind, tmp_path):
    with ends(CASES["two_round"], tmp_path, STUDY) as (setup, seals, hosts):
        for host, _ in hosts.values():
            host.prepare = lambda party, run, facts: Trap(kind).rows
        with pytest.raises(SiloweaveError) as caught:
            asked(hosts, seals, facts_of(setup))
    assert (CANARY in str(caught.value)) == issubclass(kind, NAMES_NO_ROW)
    named = f"failed with {kind.__name__}, and" in str(caught.value)
    assert named != (type(caught.value) is kind)


def test_no_error_names_a_folder_of_the_party(tmp_path):
    with ends(CASES["two_round"], tmp_path, STUDY) as (setup, seals, hosts):
        name, (host, _) = next(iter(hosts.items()))
        asked(hosts, seals, facts_of(setup, encoder=""))
        for file in (tmp_path / name / "store").iterdir():
            file.write_bytes(b"damaged")
        host._sides.clear()
        host._sites.clear()
        with pytest.raises(WireError, match=r"its folder/store/.* is damaged or cut off") as caught:
            asked(hosts, seals, None)
    assert str(tmp_path) not in str(caught.value)


def test_a_training_that_began_otherwise_is_named_without_a_path(tmp_path):
    case = CASES["silofuse"]
    with ends(case, tmp_path, STUDY) as (setup, seals, hosts):
        name = setup.roster[0]
        host, _ = hosts[name]
        asked(hosts, seals, facts_of(setup), name=name)
        (folder,) = (tmp_path / name).glob("training-*")
        (folder / "a checkpoint").touch()
        host._sides.clear()
        host._sites.clear()
        object.__setattr__(host.job, "seed", 99)
        match = r"seed = 0, and now 99.* its folder/"
        with pytest.raises(errors.StudyError, match=match) as caught:
            asked(hosts, seals, None, name=name)
    assert str(tmp_path) not in str(caught.value)
