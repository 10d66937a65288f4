"""`siloweave status --watch` and `--page`: a study that one can watch, and cannot change."""

import json
import re
import threading
import time
import webbrowser

import msgspec
import pytest
from msgspec.structs import replace

from siloweave.app import pages, watch
from siloweave.app.status import FACTS, CoordinatorStatus, PartyLine, PartyStatus
from siloweave.app.status_facts import status_of
from siloweave.app.watch import Views, exit_code, follow, show_page
from siloweave.errors import LedgerError, RosterError
from siloweave.federation.course import FINISHED, STATUS, read_status
from tests.app.test_review import request
from tests.app.test_status import run

AT_COORDINATOR = CoordinatorStatus(
    study="<b>small</b>",
    state="running",
    stage="method",
    question="sum/send_key",
    step=2,
    questions=3,
    at_most=12,
    epsilon=0.98,
    allowed=1.0,
    delta=1e-5,
    seconds=75.0,
    left=225.0,
    parties=(
        PartyLine("north", 3, 4_000, 5_000, 2, None, ""),
        PartyLine("south", 2, 3_000, 5_000, 2, 12.0, ""),
        PartyLine("east", 2, 3_000, 5_000, 2, 400.0, ""),
        PartyLine("west", 0, 0, 100, 0, None, "refuses: <script>"),
    ),
)


@pytest.fixture
def quick(monkeypatch):
    """No browser, and no wait for one."""
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    monkeypatch.setattr(watch, "_GRACE_S", 0.0)


def served(status):
    views = Views(status, 2.0)
    return views, pages.LocalPage(views.routes())


def text_of(page, name=""):
    status, _, body = request(page, name=name)
    assert status == 200
    return body.decode()


def words_of(page, name=""):
    """What is read on a page, without its marks."""
    body = text_of(page, name).partition("</style>")[2] or text_of(page, name)
    return " ".join(re.sub(r"<[^>]+>", " ", body.partition("<script")[0]).split())


# When it ends


def test_a_study_ends_when_it_has_finished_or_an_error_ended_it(ends):
    party = status_of(ends["north"])
    for state, code in [
        (FINISHED, 0),
        ("refused a question", 3),
        ("ended with an error", 2),
        ("never started", None),
        ("not running", None),
        ("not approved", None),
        ("waiting for questions", None),
        ("answering", None),
    ]:
        assert exit_code(PartyStatus(**{**as_dict(party), "state": state})) == code
    for state, code in [
        (FINISHED, 0),
        ("ended by RosterError", 2),
        ("ended by FileNotFoundError", 2),
        ("ended by StudyError", 3),
        ("ended by BudgetError", 4),
        ("ended by WireError", 5),
        ("ended by KeyboardInterrupt", 130),
        ("stopped", None),
        ("running", None),
        ("finishing", None),
        ("not begun", None),
    ]:
        assert exit_code(CoordinatorStatus(**{**as_dict(AT_COORDINATOR), "state": state})) == code


def as_dict(status):
    return {name: getattr(status, name) for name in status.__struct_fields__}


def test_a_finished_study_is_shown_once(ends, capsys, folder):
    run(ends, "north", "south")
    for name in ("coordinator", "north"):
        code, out, _ = folder.call("status", ends[name], "--watch")
        assert code == 0
        assert out.count("small at") + out.count("at party north") >= 1
        assert out.count("finished") == 1
    code, out, _ = folder.call("status", ends["coordinator"], "--watch", "--json")
    (line,) = out.splitlines()
    status = json.loads(line)
    assert (code, status["state"], status["allowed"]) == (0, FINISHED, 1.0)
    spent = {party["name"]: party["epsilon"] for party in status["parties"]}
    assert spent == {name: status_of(ends[name]).epsilon for name in ("north", "south")}
    assert all(0 < epsilon <= status["epsilon"] <= 1 for epsilon in spent.values())


def test_an_error_that_ended_a_run_is_exit_code_2(ends, folder):
    with pytest.raises(RosterError):
        run(ends, "north", seconds=0.5)
    code, out, _ = folder.call("status", ends["coordinator"], "--watch")
    assert code == 2
    assert "ended: south did not answer" in out
    assert "south" in out


# What is shown on the way


def test_a_run_is_followed_to_its_end(ends):
    """Each of its states is shown, from before the first question to the result."""
    states = []
    has_begun = threading.Event()

    def show(status):
        states.append((status.state, status.questions))
        has_begun.set()

    def work():
        has_begun.wait(30)
        run(ends, "north", "south")

    worker = threading.Thread(target=work)
    worker.start()
    code = follow(ends["coordinator"], None, 0.01, show)
    worker.join()
    assert (code, states[0], states[-1][0]) == (0, ("not begun", 0), FINISHED)
    asked = [questions for _, questions in states]
    assert asked == sorted(asked)
    assert {state for state, _ in states} <= {"not begun", "running", "finishing", FINISHED}


def test_a_pipe_gets_more_only_when_something_changed(ends, folder, monkeypatch):
    party = status_of(ends["north"])
    later = [
        party,
        PartyStatus(**{**as_dict(party), "quiet": 5.0}),
        PartyStatus(**{**as_dict(party), "quiet": 6.0, "answered": 1}),
        PartyStatus(**{**as_dict(party), "state": FINISHED}),
    ]
    monkeypatch.setattr(watch, "now", lambda *_: later.pop(0))
    code, out, _ = folder.call("status", ends["north"], "--watch", "--json", "--every", 0.1)
    assert code == 0
    assert [json.loads(line)["answered"] for line in out.splitlines()] == [0, 1, 0]


def test_a_pipe_hears_once_that_a_party_is_late(folder, monkeypatch):
    def waiting(seconds):
        south = PartyLine("south", 2, 3_000, 5_000, 2, seconds, "")
        return replace(AT_COORDINATOR, parties=(south,))

    later = [waiting(seconds) for seconds in (1.0, 20.0, 31.0, 40.0)]
    later.append(replace(AT_COORDINATOR, state=FINISHED))
    monkeypatch.setattr(watch, "now", lambda *_: later.pop(0))
    code, out, _ = folder.call("status", "--watch", "--json", "--every", 0.1)
    assert code == 0
    waited = [json.loads(line)["parties"][0]["waited"] for line in out.splitlines()]
    assert waited == [1.0, 31.0, None]


def test_a_stopped_run_is_watched_until_ctrl_c(ends, folder, monkeypatch):
    with pytest.raises(RosterError):
        run(ends, "north", seconds=0.5)
    file = ends["coordinator"] / "run" / STATUS
    course = read_status(file)
    course.ended = ""
    course.process = 2**22 + 1  # no process has this number
    file.write_bytes(msgspec.json.encode(course))

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    code, out, _ = folder.call("status", ends["coordinator"], "--watch")
    assert code == 130
    assert "stopped" in out


def test_watching_changes_nothing_but_a_file_of_facts(ends, folder, quick):
    run(ends, "north", "south")
    before = {name: data for name, data in folder.files().items() if not name.endswith(FACTS)}
    for end in ends.values():
        assert folder.call("status", end, "--watch")[0] == 0
        assert folder.call("status", end, "--page")[0] == 0
    after = {name: data for name, data in folder.files().items() if not name.endswith(FACTS)}
    assert after == before


# Bad input


def test_a_folder_of_no_study_is_an_error(folder, tmp_path, quick):
    empty = tmp_path / "empty"
    empty.mkdir()
    for option in ("--watch", "--page"):
        code, out, err = folder.call("status", empty, option)
        assert (code, out) == (2, "")
        assert "is no end of a study: give the folder of an end" in " ".join(err.split())


def test_each_end_refuses_the_folder_of_the_other_one_and_says_so(ends, folder):
    code, _, err = folder.call("party", "plan", ends["coordinator"])
    assert (code, "is the coordinator's folder" in " ".join(err.split())) == (2, True)
    code, _, err = folder.call("coordinator", ends["north"], "--spool", "spool")
    assert (code, "is the folder of a party" in " ".join(err.split())) == (2, True)
    code, _, err = folder.call("party", "account", "--folder", ends["coordinator"])
    assert (code, "name the party's folder with --folder" in " ".join(err.split())) == (2, True)
    for words in (["status"], ["party", "plan"], ["coordinator", "--spool", "spool"]):
        code, _, err = folder.call(*words, "nowhere")
        assert (code, "there is no folder 'nowhere'" in err) == (2, True)


def test_the_last_look_at_a_study_does_not_promise_another(ends, folder, capsys, monkeypatch):
    run(ends, "north", "south")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, _ = folder.call("status", ends["coordinator"], "--watch")
    assert code == 0
    assert "for the last time, as it has ended" in out
    assert "again every" not in out
    assert "in all; nothing is left to do" in out


def test_a_damaged_folder_is_an_error_at_once_and_meanwhile(ends, folder, quick):
    run(ends, "north", "south")
    receipts = ends["coordinator"] / "run" / "coordinator" / "receipts.jsonl"
    whole = receipts.read_bytes()
    receipts.write_bytes(b"{\n" + whole)
    for option in ("--watch", "--page"):
        code, _, err = folder.call("status", ends["coordinator"], option)
        assert code == 5
        assert "receipts.jsonl, line 1" in err.replace("\n", "")
    receipts.write_bytes(whole)

    def damage(_):
        receipts.write_bytes(b"{\n" + whole)

    (ends["coordinator"] / "run" / "run.json").unlink()
    with pytest.raises(LedgerError, match="line 1"):
        follow(ends["coordinator"], None, 0.0, lambda status: damage(status) or None)


def test_options_that_contradict_are_refused(ends, folder):
    for words in (("--page", "--json"), ("--page", "--watch")):
        code, _, err = folder.call("status", ends["north"], *words)
        assert code == 2
        assert "--page goes without" in " ".join(err.split())
    for every in ("0", "-1", "nan", "1e9"):
        code, _, err = folder.call("status", ends["north"], "--watch", f"--every={every}")
        assert code == 2
        assert "--every" in err


# The page


def test_a_coordinators_page_shows_who_answered_and_who_is_late():
    _, page = served(AT_COORDINATOR)
    with page:
        text = text_of(page)
        words = words_of(page)
    assert "&lt;b&gt;small&lt;/b&gt;" in text
    assert "<b>small" not in text
    assert "refuses: &lt;script&gt;" in text
    assert "3 of at most 12 questions asked" in words
    assert "at most 3 min 45 s for questions still to come, at this pace" in words
    assert "ε = 0.98 of 1 at most, of a row, at δ = 1e-5" in words
    assert "north answered 3 2 ≤ 0.98" in words
    assert "south awaited for 12.0 s" in words
    assert "east late: awaited for 6 min 40 s" in words
    assert 'max="12" value="3"' in text
    assert "data-ended=" not in text.partition("<script")[0]


def test_a_partys_page_shows_its_own_part(ends):
    run(ends, "north", "south")
    status = status_of(ends["north"])
    views, page = served(status)
    with page:
        words = words_of(page)
        text = text_of(page, "now")
    assert "At party north: finished at" in words
    assert "at this pace" not in words
    assert f"{status.releases} releases in the ledger" in words
    assert "south" not in words
    assert 'data-ended="0"' in text
    assert text.lstrip().startswith("<h1>")
    assert views.has_shown_end.is_set()


def test_a_finished_coordinators_page_tells_of_no_time_that_is_left(ends):
    run(ends, "north", "south")
    _, page = served(status_of(ends["coordinator"]))
    with page:
        words = words_of(page)
    assert "at this pace" not in words
    assert "in all" in words
    assert "so far" not in words


def test_the_page_is_for_reading_alone():
    views, page = served(AT_COORDINATOR)
    with page:
        for name in ("", "now", "save"):
            assert request(page, "POST", name, b"{}")[0] == 404
        assert request(page, token="x")[0] == 404
        assert request(page, name="now", Host="example.org")[0] == 403
        _, headers, _ = request(page)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        finished = CoordinatorStatus(**{**as_dict(AT_COORDINATOR), "state": FINISHED})
        assert not views.has_shown_end.is_set()
        views.put(finished)
        assert 'data-ended="0"' in text_of(page, "now")
    assert views.has_shown_end.is_set()


def test_the_page_is_served_until_the_run_ends(ends, monkeypatch, capsys):
    """A browser that asks in between is answered, and the last thing that it is sent is the end."""
    answers = []
    pattern = re.compile(r"(http://\S+)")

    def visit():
        address = ""
        while not address:
            match = pattern.search(capsys.readouterr().out)
            address = match[1] if match else ""
            time.sleep(0.01)
        page = type("Page", (), {"address": address})
        answers.append(text_of(page, "now"))
        run(ends, "north", "south")
        while "data-ended" not in answers[-1]:
            answers.append(text_of(page, "now"))
            time.sleep(0.01)

    monkeypatch.setattr(watch, "_GRACE_S", 60.0)
    visitor = threading.Thread(target=visit)
    visitor.start()
    code = show_page(ends["coordinator"], None, 0.05, 0, browser=False)
    visitor.join()
    assert code == 0
    assert "not begun" in answers[0]
    assert FINISHED in answers[-1]


def test_ctrl_c_ends_the_page(ends, monkeypatch, folder, quick):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupted)
    code, out, err = folder.call("status", ends["north"], "--page")
    assert code == 130
    assert out.startswith("The study is at http://127.0.0.1:")
    assert "No browser could be opened" in err
