"""A forked process works, or is refused in a sentence: it never waits for threads it has not."""

import os
import subprocess
import sys

import pytest

import siloweave as sw
from siloweave.datasets import adult, adult_schema

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

_CHILD = """
import os, signal, sys
import siloweave as sw
from siloweave.errors import InputError

folder, before, after = sys.argv[1:]
model = sw.load(folder) if before == "load" else None
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that waits for ever is ended, and its status says so
    try:
        model = model or sw.load(folder)
        print(len(model.sample(3)) if after == "sample" else "loaded", flush=True)
    except InputError as error:
        print(error, flush=True)
    os._exit(0)
print("status", os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    sw.GaussianCopula().fit(adult().take(range(200)), adult_schema(), seed=0).save(folder)
    return folder


def forked(*arguments):
    command = [sys.executable, "-c", _CHILD, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_a_child_of_a_process_that_drew_is_refused_in_a_sentence(saved):
    output = forked(saved, "load", "sample")
    assert "forked" in output
    assert '"spawn"' in output
    assert "status 0" in output


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names a process's threads")
def test_a_child_of_a_process_that_only_imported_works(saved):
    assert forked(saved, "import", "sample") == "3\nstatus 0\n"
