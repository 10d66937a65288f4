"""Settings and fixtures that every test may use."""

import itertools
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.synthesizers.properties")

ROOT = Path(__file__).resolve().parent.parent

# The same examples on every machine, and no test that fails because a machine is slow.
settings.register_profile(
    "siloweave",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("siloweave")

# Half of the time of these tests is compilation, of networks that train for three steps: they are
# compiled quickly and run slowly. An empty XLA_FLAGS compiles them as users' programs are; that is
# what `make slow` does, also with the tests of networks that are not slow.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)

# Matrix products are added up in the same order on every x86 machine: golden runs are held to it.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

# Compiled programs are kept, for the other workers of a run and for the next run. Small ones too:
# a test that runs a network without jit compiles hundreds of them.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

_MAPS = Path("/proc/self/maps")  # Linux alone has it
_MOST_MAPS = 20_000  # a process has 65,530 at most, and a compiled program takes about 12
_ran = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave sentences of commands in one line, for tests that are not about their width."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # pytest's own lines stay as wide as the terminal is.
    if reporter is not None:
        writer = config.get_terminal_writer()
        writer.fullwidth = writer.fullwidth
    os.environ["COLUMNS"] = "1000"


def pytest_runtest_teardown() -> None:
    """Let compiled programs go in time: XLA's compiler crashes where no memory map is left."""
    if next(_ran) % 10 or "jax" not in sys.modules or not _MAPS.exists():
        return
    if _MAPS.read_bytes().count(b"\n") > _MOST_MAPS:
        sys.modules["jax"].clear_caches()


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory):
    """Keep records of parties' accounts out of the folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILOWEAVE_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the large benchmark tables, or skip where there is none.

    The tables are too large to live in the repository. The folder is named by the environment
    variable SILOWEAVE_DATA; without it, `../shared/data` beside the checkout is used.
    """
    named = os.environ.get("SILOWEAVE_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (folder / "datasets.json").is_file():
        pytest.skip(
            f"needs the benchmark tables, and {folder} has no datasets.json: "
            "set SILOWEAVE_DATA to the folder that holds them"
        )
    return folder
