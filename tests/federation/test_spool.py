"""Questions and answers as files: killed, cut short, carried by hand, mixed with others'."""

import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree
from threading import Thread

import numpy as np
import pytest

from siloweave.errors import InputError, LedgerError, RosterError, SiloweaveError, WireError
from siloweave.federation import messages
from siloweave.federation import spool as spools
from siloweave.federation.frames import Seals, keys_for, signed_roster
from siloweave.federation.messages import Envelope
from siloweave.federation.spool import _Box
from siloweave.federation.watch import Watch
from tests.federation.rosters import identity_of
from tests.federation.small import Ask, Hello, Size, frame, reply_in
from tests.federation.spooled import (
    ASK,
    STEPS,
    coordinator,
    entries_of,
    ledger_in,
    party,
    run,
    serve_from,
    spool_of,
    stop,
)


def files(folder, *below):
    """Names of what lies in a subfolder, without folders."""
    place = (folder / "spool").joinpath(*below)
    return sorted(one.name for one in place.iterdir() if not one.is_dir())


def test_a_run_crosses_the_folder(tmp_path):
    with party(tmp_path):
        answers = run(spool_of(tmp_path))
    assert len(answers) == STEPS == len(entries_of(tmp_path))
    assert all(reply_in(answer, Size) for _, answer in answers)
    for way in ("to-clinic", "from-clinic"):
        assert files(tmp_path, way) == []
        assert len(files(tmp_path, way, "done")) == STEPS


def test_all_is_for_its_owner_alone_and_shows_nothing(tmp_path):
    (tmp_path / "spool" / "to-clinic").mkdir(parents=True, mode=0o777)
    with party(tmp_path):
        run(spool_of(tmp_path), 1)
    made = [one for one in (tmp_path / "spool").rglob("*") if one.parent != tmp_path]
    assert len(made) == 6
    assert all(one.stat().st_mode & 0o077 == 0 for one in made)
    written = b"".join(one.read_bytes() for one in made if one.is_file())
    assert b"number of rows" not in written
    assert messages.encode(ASK) not in written


def test_an_answer_is_awaited_for_so_long_and_taken_when_it_comes_later(tmp_path):
    with pytest.raises(RosterError, match=r"party 'clinic' did not answer within 0\.05 s"):
        run(spool_of(tmp_path, seconds=0.05), 1)
    (question,) = files(tmp_path, "to-clinic")
    before = (tmp_path / "spool" / "to-clinic" / question).read_bytes()
    with party(tmp_path):
        while files(tmp_path, "to-clinic"):
            time.sleep(0.001)
    ((_, answer),) = run(spool_of(tmp_path, seconds=0.05), 1)  # nobody is there to answer
    assert reply_in(answer, Size)
    assert (tmp_path / "spool" / "to-clinic" / "done" / question).read_bytes() == before


def test_a_question_whose_answer_was_lost_is_written_anew(tmp_path):
    with party(tmp_path):
        ((_, answer),) = run(spool_of(tmp_path), 1)
    (name,) = files(tmp_path, "to-clinic", "done")
    box = tmp_path / "spool" / "to-clinic"
    (box / "done" / name).rename(box / name)  # as if it had not been answered
    rmtree(tmp_path / "spool" / "from-clinic")
    with party(tmp_path):
        with pytest.raises(RosterError, match="did not answer"):
            run(spool_of(tmp_path, seconds=0.1), 1)
        ((_, again),) = run(spool_of(tmp_path), 1)
    assert again == answer
    assert len(entries_of(tmp_path)) == 1


def test_an_unknown_party_is_not_asked(tmp_path):
    with pytest.raises(RosterError, match=r"party 'lab' is not there; present are \['clinic'\]"):
        spool_of(tmp_path).send("lab", b"")


def test_a_refusal_comes_back_as_it_was_and_holds_once(tmp_path):
    with party(tmp_path):
        spool = spool_of(tmp_path)
        with pytest.raises(InputError, match=r"sigma = 0\.001 must lie between"):
            run(spool, 1, ask=Ask(0.001))
        assert run(spool, 1, ask=Hello())  # the step was not answered, so it may ask otherwise


def test_two_requests_of_one_step(tmp_path):
    """The first is answered; another one of the same step is refused, and costs nothing."""
    with party(tmp_path):
        run(spool_of(tmp_path), 1)
        with pytest.raises(WireError, match="was answered before for another request"):
            run(spool_of(tmp_path), 1, ask=Ask(400.0))
        run(spool_of(tmp_path), 2)
    assert len(entries_of(tmp_path)) == 2


def test_two_requests_of_one_step_that_lie_there_together(tmp_path):
    asked = [frame(Ask(sigma), to="clinic") for sigma in (500.0, 400.0)]
    for one in asked:
        with pytest.raises(RosterError):
            spool_of(tmp_path, seconds=0.0).send("clinic", one)
    assert len(files(tmp_path, "to-clinic")) == 2
    with party(tmp_path):
        found = []
        for one in asked:
            try:
                found.append(spool_of(tmp_path).send("clinic", one))
            except WireError as error:
                found.append(str(error))
    assert sum("answered before for another request" in str(one) for one in found) == 1
    assert len(entries_of(tmp_path)) == 1


def test_a_party_that_is_asked_to_stop_ends_and_may_start_again(tmp_path):
    thread = Thread(target=serve_from, args=(tmp_path,), daemon=True)
    thread.start()
    stop(tmp_path / "spool", "clinic")
    thread.join(20)
    assert not thread.is_alive()
    assert files(tmp_path, "to-clinic") == []
    with party(tmp_path):
        assert run(spool_of(tmp_path), 1)


@pytest.mark.parametrize("name", ["../up", "a/b", "Würzburg", "..", ".", "a b", "x" * 200])
def test_no_name_of_a_party_leads_out_of_the_folder(tmp_path, name):
    with party(tmp_path, name=name):
        assert run(spool_of(tmp_path, name=name), 1, name)
    assert {one.name for one in tmp_path.iterdir()} == {"spool", "party"}
    made = {one.name for one in (tmp_path / "spool").iterdir()}
    assert len(made) == 2
    assert all(one.startswith(("to-", "from-")) and len(one) < 100 for one in made)


def test_a_folder_that_cannot_be_used_is_a_clear_error_at_both_ends(tmp_path):
    (tmp_path / "spool").write_text("a file")
    for use in (spool_of, serve_from):
        with pytest.raises(InputError, match="spool: is a file"):
            use(tmp_path)
    (tmp_path / "spool").unlink()
    (tmp_path / "spool").mkdir()
    for name in ("to-clinic", "from-clinic"):
        (tmp_path / "spool" / name).write_text("a file")
    for use in (spool_of, serve_from):
        with pytest.raises(InputError, match="cannot be used as a folder"):
            use(tmp_path)


def test_a_folder_that_is_taken_away_is_waited_for_until_it_is_back(tmp_path):
    """As a memory stick is: its subfolders are not made anew where it was."""
    lines = []
    watch = Watch("party 'clinic'", lines.append)
    with party(tmp_path, watch=watch):
        run(spool_of(tmp_path), 1)
        (tmp_path / "spool").rename(tmp_path / "away")
        while not any("lost" in line for line in lines):
            time.sleep(0.001)
        assert not (tmp_path / "spool").exists()
        (tmp_path / "away").rename(tmp_path / "spool")
        assert len(run(spool_of(tmp_path), 2)) == 2
    assert lines[0] == "party 'clinic': connected"
    assert lines[1].startswith("party 'clinic': waiting for the first question in ")
    assert lines[2].startswith("party 'clinic': lost (")
    assert lines[2].endswith("trying again")
    assert lines[3].startswith("party 'clinic': back after ")
    assert max(map(len, lines)) <= 80


# Two users, links, and two coordinators


def shared(folder):
    """A spool folder that its owner shares with a group."""
    (folder / "spool").mkdir()
    (folder / "spool").chmod(0o2770)
    return folder


def test_a_folder_that_is_shared_with_a_group_has_files_for_the_group(tmp_path):
    shared(tmp_path)
    with party(tmp_path):
        run(spool_of(tmp_path), 1)
    made = list((tmp_path / "spool").rglob("*"))
    assert len(made) == 6
    for one in made:
        assert one.stat().st_mode & 0o7777 == (0o2770 if one.is_dir() else 0o660), one


AS_ANOTHER = """
import os, sys
from pathlib import Path
from siloweave.federation.exchanges import Nonces
from siloweave.federation.frames import Seals
from siloweave.federation.messages import Envelope, decode, encode
from siloweave.federation.spool import serve
from tests.federation.rosters import identity_of
from tests.federation.spooled import roster_of

def echo(question):
    asked = decode(question.data, Envelope)
    return encode(Envelope(asked.run, asked.step, asked.to, asked.sender, asked.body))

os.setgroups([])
os.setresgid({group}, {group}, {group})
os.setresuid({user}, {user}, {user})
seals = Seals("clinic", identity_of("clinic"), roster_of(), Nonces(Path(sys.argv[1]) / "nonces"))
serve(Path(sys.argv[2]), seals, echo, pause=0.004)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to be two")
@pytest.mark.parametrize("mode", [0o2770, 0o700])
def test_two_users_of_one_group_share_a_folder_that_is_made_for_them(tmp_path, mode):
    """The coordinator is this user; the party is another one, of a group that has the folder."""
    group, user = 60_123, 60_124
    place = tmp_path / "spool"
    place.mkdir()
    os.chown(place, 0, group)
    place.chmod(mode)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, user, group)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_mode & 0o005 != 0o005:
            above.chmod(above.stat().st_mode | 0o055)
    code = AS_ANOTHER.format(group=group, user=user)
    command = [sys.executable, "-c", code, str(home), str(place)]
    spool = spool_of(tmp_path)  # which makes the subfolders
    other = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert mode == 0o2770 or other.wait(30)
        if mode == 0o2770:
            for step in range(2):
                question = messages.encode(Envelope("r1", step, "coordinator", "clinic", b"x"))
                answer = messages.decode(spool.send("clinic", question), Envelope)
                assert (answer.step, answer.body) == (step, b"x")
            stop(place, "clinic")
        assert (other.wait(30) == 0) == (mode == 0o2770)
        said = other.stderr.read().decode()
        assert ("chmod 2770" in said) == (mode == 0o700), said
    finally:
        other.kill()
        other.wait()
        other.stderr.close()


def test_a_subfolder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "to-clinic").symlink_to(tmp_path / "elsewhere")
    for use in (spool_of, serve_from):
        with pytest.raises(InputError, match=r"to-clinic: is a link, and links .* not followed"):
            use(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_subfolder_that_becomes_a_link_ends_the_party(tmp_path):
    errors = []

    def serving():
        try:
            serve_from(tmp_path)
        except InputError as error:
            errors.append(str(error))

    thread = Thread(target=serving, daemon=True)
    thread.start()
    box = tmp_path / "spool" / "to-clinic"
    while not (box / "done").is_dir():
        time.sleep(0.001)
    box.rename(tmp_path / "moved")
    box.symlink_to(tmp_path / "moved")
    thread.join(20)
    assert len(errors) == 1
    assert "is a link" in errors[0] or "is not there" in errors[0]


@pytest.mark.parametrize("use", ["write", "read", "finish"])
def test_a_link_that_is_swapped_in_after_a_subfolder_was_opened_leads_nowhere(
    use, tmp_path, monkeypatch
):
    box, name = spools._Box(tmp_path / "to-clinic"), "a" * 40
    box.write(name, b"of the study")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "done").mkdir(parents=True)
    (elsewhere / name).write_bytes(b"of others")
    enter = spools._Open.__enter__

    def swapping(folder):
        opened = enter(folder)
        if folder.path == box.path and not box.path.is_symlink():
            box.path.rename(tmp_path / "moved")
            box.path.symlink_to(elsewhere)
        return opened

    monkeypatch.setattr(spools._Open, "__enter__", swapping)
    if use == "write":
        box.write("b" * 40, b"sealed")
        assert (tmp_path / "moved" / ("b" * 40)).read_bytes() == b"sealed"
    elif use == "read":
        assert box.read(name) == b"of the study"
    else:
        box.finish(name)
        assert (tmp_path / "moved" / "done" / name).read_bytes() == b"of the study"
    assert sorted(one.name for one in elsewhere.rglob("*")) == [name, "done"]
    assert (elsewhere / name).read_bytes() == b"of others"


def test_a_folder_has_one_coordinator_at_a_time(tmp_path):
    with (
        spool_of(tmp_path),
        pytest.raises(InputError, match=rf"another coordinator .*process {os.getpid()} on .*'flu'"),
        spool_of(tmp_path),
    ):
        pass
    with spool_of(tmp_path) as spool, party(tmp_path):
        assert run(spool, 1)


# Foreign, broken and repeated files


def lay(box):
    """All kinds of files that are no frames, by their names and what the log says of them."""
    box.mkdir(parents=True, exist_ok=True)
    names = [f"{i:040x}" for i in range(8)]
    (box / names[0]).write_bytes(b"")
    (box / names[1]).write_bytes(b"\xff" * 5_000)
    (box / names[2]).symlink_to(box / names[1])
    (box / names[3]).mkdir()
    os.mkfifo(box / names[4])
    with (box / names[5]).open("wb") as file:
        file.truncate(messages.MAX_BYTES + 1)  # holes: nothing of it is on disk
    strange = coordinator().seal("clinic", b"\1", frame(ASK, to="lab"))
    (box / names[6]).write_bytes(strange)
    (box / names[7]).write_bytes(coordinator().seal("clinic", b"\1", frame(ASK))[:-1])
    (box / "readme.txt").write_bytes(b"hello")
    return [*names, "readme.txt"]


def test_what_is_no_frame_is_ignored_and_named_once(tmp_path, caplog):
    names = lay(tmp_path / "spool" / "to-clinic")
    with caplog.at_level(logging.WARNING, "siloweave"), party(tmp_path):
        assert len(run(spool_of(tmp_path))) == STEPS
    for name in names:
        found = [one for one in caplog.messages if f"{name}: ignored" in one]
        assert len(found) == 1, (name, found)
        assert ("no file of at most" in found[0]) == (name in names[3:6])
    assert len(entries_of(tmp_path)) == STEPS
    assert {one.name for one in (tmp_path / "spool" / "to-clinic").iterdir()} == {*names, "done"}


def test_a_file_that_was_whole_by_the_time_it_was_ignored_is_read_again(tmp_path):
    box, path = _Box(tmp_path), tmp_path / ("a" * 40)
    path.write_bytes(b"half")
    assert box.read(path.name) == b"half"
    path.write_bytes(b"half and half")
    box.ignore(path.name, "it was cut short")
    assert box.read(path.name) == b"half and half"
    box.ignore(path.name, "it is no frame")
    assert box.read(path.name) is None


def test_a_question_of_an_earlier_roster_does_not_end_a_party_that_has_another_to_answer(tmp_path):
    earlier = {name: keys_for("flu", identity_of(name)) for name in ("clinic", "lab")}
    office = identity_of("coordinator")
    stale = Seals("coordinator", office, signed_roster("flu", office, earlier))
    box = tmp_path / "spool" / "to-clinic"
    box.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run, spool_of(tmp_path), 1)
        while not any(box.glob("?" * 40)):
            time.sleep(0.001)
        (box / ("0" * 40)).write_bytes(stale.ask("clinic", frame(ASK)))
        with party(tmp_path):
            assert len(asked.result()) == 1
            assert len(run(spool_of(tmp_path), 2)) == 2


def test_what_an_end_was_writing_when_it_was_killed_is_removed(tmp_path):
    for way in ("to-clinic", "from-clinic"):
        (tmp_path / "spool" / way).mkdir(parents=True)
        (tmp_path / "spool" / way / f"{'a' * 40}.new").write_bytes(b"half")
    with party(tmp_path):
        run(spool_of(tmp_path), 1)
    assert not list((tmp_path / "spool").rglob("*.new"))


def broken(answer, i):
    """An answer with a flipped bit, cut short, or nothing."""
    middle = len(answer) // 2
    flipped = answer[:middle] + bytes([answer[middle] ^ 1]) + answer[middle + 1 :]
    return (flipped, answer[:middle], b"")[i % 3]


def test_an_answer_that_was_broken_is_ignored_until_the_right_one_comes(tmp_path, caplog):
    """Someone carries the party's answers, and breaks each before it brings it whole."""
    there, here = tmp_path / "there", tmp_path / "spool"
    over = threading.Event()

    def carry():
        count = 0
        while not over.is_set():
            for one in (here / "to-clinic").glob("[0-9a-f]" * 40):
                bring(one, there / "to-clinic" / one.name)
            for one in (there / "from-clinic").glob("[0-9a-f]" * 40):
                if not (there / "carried" / one.name).exists():
                    count += 1
                    (here / "from-clinic" / one.name).write_bytes(broken(one.read_bytes(), count))
                    time.sleep(0.02)
                    bring(one, here / "from-clinic" / one.name)
                    (there / "carried").mkdir(exist_ok=True)
                    (there / "carried" / one.name).touch()
            time.sleep(0.002)

    def bring(one, to):
        """In pieces, and with a time of long ago or yet to come."""
        try:
            data = one.read_bytes()
        except FileNotFoundError:
            return
        if (to.parent / "done" / to.name).exists() or not to.parent.exists():
            return
        with to.open("wb") as file:
            for piece in (data[:100], data[100:]):
                file.write(piece)
                file.flush()
                os.utime(file.fileno(), (0, 2e9 * (len(data) % 2)))
                time.sleep(0.005)

    carrier = Thread(target=carry, daemon=True)
    with caplog.at_level(logging.WARNING, "siloweave"), party(tmp_path, spool=there):
        spool = spool_of(tmp_path)
        carrier.start()
        answers = run(spool)
        over.set()
        carrier.join(20)
    assert len(answers) == STEPS == len(entries_of(tmp_path))
    assert any("from-clinic" in one and "ignored" in one for one in caplog.messages)


def test_a_question_that_comes_again_is_ignored_also_after_a_start(tmp_path, caplog):
    with party(tmp_path):
        run(spool_of(tmp_path), 1)
    box = tmp_path / "spool" / "to-clinic"
    (name,) = files(tmp_path, "to-clinic", "done")
    for copy in (name, "a" * 40):
        (box / copy).write_bytes((box / "done" / name).read_bytes())
    with caplog.at_level(logging.WARNING, "siloweave"), party(tmp_path):
        run(spool_of(tmp_path), 2)
    assert sum("comes again" in one for one in caplog.messages) >= 1
    assert files(tmp_path, "from-clinic") == []
    assert len(entries_of(tmp_path)) == 2


# Kills and full disks


class KilledError(BaseException):
    """The process is gone."""


class Disk:
    """Counts what one end forces to disk or renames, and fails at one of these."""

    def __init__(self, patch, thread, at=None, error=KilledError):
        self.thread, self.at, self.error, self.count = thread, at, error, 0
        fsync, self.replace = os.fsync, Path.replace
        patch.setattr(os, "fsync", lambda descriptor: self.on(fsync, descriptor))
        patch.setattr(Path, "replace", lambda path, to: self.on(self.replace, path, to))

    def on(self, act, *args):
        move = act is self.replace and args[1].parent.name == "done"
        full = isinstance(self.error, OSError)  # which a move within a disk does not need
        if threading.current_thread().name == self.thread and not (move and full):
            self.count += 1
            if self.count == self.at:
                raise self.error
        return act(*args)


def serve_on(folder, over, deaths):
    """A party that is started again whenever it dies."""
    while not over.is_set():
        try:
            serve_from(folder)
        except (KilledError, SiloweaveError) as error:
            deaths.append(error)


def survived(folder, at, end, error=KilledError):
    """Whether a run comes to its end although one of its ends dies at this write."""
    over, deaths = threading.Event(), []
    ledger_in(folder).close()  # whose lock a thread would hold if it died while it made the file
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch, end, at, error)
        thread = Thread(target=serve_on, args=(folder, over, deaths), name="party", daemon=True)
        thread.start()
        heard, whole = [], False
        while not whole:
            try:
                whole = bool(run(spool_of(folder), heard=heard))
            except (KilledError, SiloweaveError) as died:
                deaths.append(died)
                assert len(deaths) < 4, deaths
                if isinstance(died, LedgerError):  # which is closed until the party starts again
                    stop(folder / "spool", "clinic")
        over.set()
        stop(folder / "spool", "clinic")
        thread.join(20)
    assert not thread.is_alive()
    return disk.count, deaths, heard


def drawn_once(folder, heard):
    """Every step has one answer, however often it came, and one entry."""
    steps = defaultdict(set)
    for _, answer in heard:
        steps[messages.decode(answer, Envelope).step].add(answer)
    assert sorted(steps) == list(range(STEPS))
    assert all(len(found) == 1 for found in steps.values())
    assert sorted(entry.step for entry in entries_of(folder)) == [f"{i}.1" for i in range(STEPS)]
    assert set(files(folder, "to-clinic")) <= {"stop"}
    assert not list((folder / "spool").rglob("*.new"))


@pytest.mark.parametrize("end", ["party", "MainThread"])
def test_either_end_may_be_killed_at_every_write(tmp_path, end):
    writes, deaths, heard = survived(tmp_path / "whole", None, end)
    assert deaths == []
    drawn_once(tmp_path / "whole", heard)
    assert writes > STEPS
    for at in range(1, writes + 1):
        folder = tmp_path / str(at)
        _, deaths, heard = survived(folder, at, end)
        assert len(deaths) == 1, at
        drawn_once(folder, heard)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("end", ["party", "MainThread"])
def test_a_full_disk_is_a_clear_error_and_nothing_is_half_written(tmp_path, end):
    """A write that fails in the ledger, the store, the nonces, a question, an answer or a move."""
    writes, _, _ = survived(tmp_path / "whole", None, end)
    named = 0
    for at in range(1, writes + 1):
        folder = tmp_path / str(at)
        _, deaths, heard = survived(folder, at, end, FULL)
        assert all("No space left" in str(one) for one in deaths), (at, deaths)
        assert all(isinstance(one, InputError | LedgerError) for one in deaths), (at, deaths)
        named += len(deaths)
        drawn_once(folder, heard)
    assert named >= STEPS


def test_a_question_that_cannot_be_written_leaves_nothing(tmp_path):
    spool = spool_of(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, "MainThread", 1, FULL)
        with pytest.raises(InputError, match=r"cannot be written \(No space left"):
            run(spool, 1)
    assert files(tmp_path, "to-clinic") == []


@pytest.mark.slow
def test_a_party_in_a_process_of_its_own_is_killed_again_and_again(tmp_path):
    """By the system, at moments that nobody chose."""
    rng, over, steps, killed = np.random.default_rng(0), threading.Event(), 100, []
    done = tmp_path / "spool" / "to-clinic" / "done"

    def answered():
        return len(list(done.glob("*")))

    def kill_and_start():
        while not over.is_set():
            before = answered()
            started = subprocess.Popen([sys.executable, "-m", "tests.federation.spooled", tmp_path])
            while answered() == before and not over.is_set():
                time.sleep(0.005)
            time.sleep(0.3 * rng.random())
            started.kill()
            killed.append(started.wait())

    killer = Thread(target=kill_and_start, daemon=True)
    killer.start()
    try:
        answers = [run(spool_of(tmp_path, seconds=120.0), steps) for _ in range(2)]
    finally:
        over.set()
        killer.join(60)
    assert len(killed) > 2
    assert answers[0] == answers[1]
    assert len(entries_of(tmp_path)) == steps
