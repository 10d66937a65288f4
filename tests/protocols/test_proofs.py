"""Parties of a masked sum from which nobody may vanish show each other what they received.

A coordinator that sends other requests, cohorts or models to one of them has random numbers, and is
found out with the next question.
"""

import re

import msgspec
import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Session, with_closing
from siloweave.methods.flaim.messages import MeasureQueries
from siloweave.protocols.histograms import CountColumns
from siloweave.protocols.secure_sums import HANDLERS, Count
from tests.federation.rosters import site_with, terms_of
from tests.federation.sites import Sites, handlers_of
from tests.guarantees.lying import sent_through
from tests.protocols.vanishing import CLIQUES, FACTS, NAMES, study_of
from tests.synthesizers.test_visibility import CASES

FEW = NAMES[:3]
SHOWN = "was not shown that {!r} received the same in step {} of run r"


def fewer(request):
    return msgspec.structs.replace(request, cliques=(("a", "b"), ("b",)), times=(2, 1))


def smaller(request):
    """Another cohort, with as many shares of noise as it asks for."""
    keys = {name: key for name, key in request.keys.items() if name != "bob"}
    return msgspec.structs.replace(request, keys=keys)


def wider(request):
    return msgspec.structs.replace(request, share_sigma=2 * request.share_sigma)


def lied_to(fooled, lie, number=0, **named):
    """A study whose coordinator lies to some parties about its sum of this number."""
    steps = {}

    def change(name, step, request):
        if not isinstance(request, Count):
            return request
        at = steps.setdefault(step, len(steps))
        return lie(request) if name in fooled and at == number else request

    return study_of(dropouts=0, names=FEW, change=change, **named)


def entries(study):
    return [len(site.ledger.entries) for site in study.line.sites.values()]


@pytest.mark.parametrize("lie", [fewer, wider])
@pytest.mark.parametrize("fooled", [("ada",), ("cleo",), ("ada", "cleo")])
def test_a_lie_to_some_is_found_with_the_next_sum_and_named_and_nothing_more_is_paid(lie, fooled):
    study = lied_to(fooled, lie)
    sums = study.count().tables
    assert np.abs(sums[0]).max() > 2**20  # random numbers, of 60 rows
    other = next(name for name in FEW if (name in fooled) != ("ada" in fooled))
    with pytest.raises(WireError, match=f"'ada' {SHOWN.format(other, 1)}") as caught:
        study.count()
    assert "the coordinator lied to one of them" in str(caught.value)
    assert entries(study) == [1, 1, 1]


@pytest.mark.parametrize(("fooled", "who", "other"), [(("ada",), "ada", "cleo"),
                                                      (("ada", "cleo"), "bob", "ada")])  # fmt: skip
def test_so_is_a_cohort_that_others_do_not_know(fooled, who, other):
    study = lied_to(fooled, smaller)
    study.count()
    with pytest.raises(WireError, match=f"'{who}' {SHOWN.format(other, 1)}"):
        study.count()
    assert entries(study)[1] == 1


def test_a_lie_about_a_later_sum_is_found_with_the_one_after_it():
    study = lied_to(("bob",), fewer, number=1)
    study.count()
    study.count()
    with pytest.raises(WireError, match=SHOWN.format("bob", 2)):
        study.count()
    assert entries(study) == [2, 2, 2]


def test_it_is_found_by_the_question_that_closes_a_run_if_that_comes_by_itself():
    study = lied_to(("bob",), fewer)
    study.count()
    study.line._handlers = with_closing(HANDLERS)
    with pytest.raises(WireError, match=SHOWN.format("bob", 1)):
        study.session.close()


def test_an_honest_coordinator_is_not_accused_whoever_takes_part_in_which_sum():
    study = study_of(dropouts=0, names=NAMES)
    for names in (NAMES, NAMES[:2], NAMES[3:], NAMES[1:5], NAMES[:1], NAMES, NAMES[2:4]):
        study.count(names=names)
    study.line._handlers = with_closing(HANDLERS)
    assert len(study.session.close().ledgers) == len(NAMES)


def test_without_the_proofs_no_party_pays_for_anything_more():
    study = study_of(dropouts=0, names=FEW)
    study.count()
    study.session._proofs.clear()
    with pytest.raises(WireError, match="was not shown"):
        study.count()
    assert entries(study) == [1, 1, 1]


@pytest.mark.parametrize("which", ["another's", "of an earlier sum", "changed"])
def test_a_proof_of_something_else_is_refused(which):
    study = study_of(dropouts=0, names=FEW)
    study.count()
    old = {name: dict(proofs) for name, proofs in study.session._proofs.items()}
    study.count()
    now = study.session._proofs
    if which == "another's":
        now["ada"]["bob"] = now["ada"]["cleo"]
    elif which == "changed":
        now["ada"]["bob"] = now["ada"]["bob"][:-1] + bytes([now["ada"]["bob"][-1] ^ 1])
    else:
        now["ada"] = old["ada"]
    with pytest.raises(WireError, match="was not shown that 'bob' received the same in step 2"):
        study.count()


def test_a_sum_may_not_bring_another_sum_along_that_shows_nothing():
    """What comes along has no proofs, so only a question that pays for nothing may."""
    study = study_of(dropouts=0, names=FEW)
    study.count()
    asked = Count(study.keys, study.noise.share(3, 1240)[0], 1, CLIQUES)
    proofs = dict(study.session._proofs["ada"])
    frame = Envelope(
        "r", 2, "coordinator", "ada", messages.encode(asked), messages.encode(asked), proofs
    )
    with pytest.raises(WireError, match="was not shown that 'bob' received the same in step 2"):
        study.line.sites["ada"].answer(messages.encode(frame), HANDLERS)
    assert len(study.line.sites["ada"].ledger.entries) == 2


def test_a_party_that_starts_again_has_not_forgotten_what_it_must_be_shown():
    study = study_of(dropouts=0, names=FEW)
    study.count()
    shown = {name: dict(proofs) for name, proofs in study.session._proofs.items()}
    old, terms = study.line.sites, terms_of(FEW, facts=FACTS)
    anew = {
        name: site_with(name, study.tables[name], terms, store=one._store, ledger=one.ledger)
        for name, one in old.items()
    }
    asked = Count(study.keys, study.noise.share(3, 1240)[0], 1, CLIQUES)
    again = Session(FEW, Sites(anew, HANDLERS), run="r", proofs={})
    again.rounds = 2
    with pytest.raises(WireError, match="in step 1 of run r"):
        again.ask(asked)
    again = Session(FEW, Sites(anew, HANDLERS), run="r", proofs=shown)
    again.rounds = 2
    again.ask(asked)
    assert [len(one.ledger.entries) for one in anew.values()] == [2, 2, 2]


# Whole studies


def lying(kind):
    """The second party is sent another noise than the others, in the first sum of a kind."""
    send, steps = Direct.send, []

    def seen(transport, party, frame):
        envelope = messages.decode(frame, Envelope)
        request = messages.decode_request(envelope.body, handlers_of(transport))
        if type(request) is kind:
            steps.append(envelope.step)
            if envelope.step == steps[0] and party == "party-2":
                body = messages.encode(wider(request))
                frame = messages.encode(msgspec.structs.replace(envelope, body=body))
        return send(transport, party, frame)

    return sent_through(seen)


@pytest.mark.parametrize(
    ("method", "kind", "run"),
    [("flaim", MeasureQueries, "run"), ("two_round", CountColumns, "run-bins")],
    ids=["in the next round", "in the next stage"],
)
def test_a_lie_in_a_whole_study_is_found(method, kind, run):
    case = CASES[method]
    with lying(kind), pytest.raises(WireError) as caught:
        case.synth.fit(case.data(0), case.schema, **case.fit)
    said = rf"'party-1' was not shown that 'party-2' received the same in step \d of run {run},"
    assert re.search(said, str(caught.value))
