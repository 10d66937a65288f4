"""What is installed: the lock files agree with the metadata, and the wheel is whole."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import siloweave
from siloweave.app.cli import app
from siloweave.federation import clientapp
from tests.architecture.import_rules import declared
from tests.architecture.source import ROOT, all_sources

PIN = re.compile(r"^([a-z0-9][a-z0-9-]*)==([^ ;\\]+)([^\\]*)\\?$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
EXTRAS = {"faker", "umap-learn", "flwr", "httpx", "uvicorn", "fastexcel", "pyreadstat"} | {
    "duckdb",
    "adbc-driver-manager",
    "adbc-driver-postgresql",
}


def read_lock(text: str) -> dict[str, tuple[str, int]]:
    """Map each name in a lock file to its version and its number of hashes."""
    locked: dict[str, tuple[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if pin := PIN.match(line):
            name = pin[1]
            assert name not in locked, f"{name} is locked twice"
            locked[name] = (pin[2], 0)
        else:
            assert HASH.match(line), f"neither a pinned version nor a hash: {line!r}"
            version, count = locked[name]
            locked[name] = (version, count + 1)
    return locked


def lock_file(name: str) -> dict[str, tuple[str, int]]:
    return read_lock((ROOT / name).read_text(encoding="utf-8"))


LOCKS = (
    "requirements.lock",
    "requirements-test.lock",
    "requirements-flower.lock",
    "requirements-docs.lock",
    "requirements-browser.lock",
)


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_its_hashes(name: str):
    without = [package for package, (_, hashes) in lock_file(name).items() if not hashes]
    assert not without


@pytest.mark.parametrize(
    "text",
    ["six>=1.16", "six @ git+https://example.org/six", "-" + "-index-url https://example.org"],
)
def test_a_lock_file_holds_only_pins_and_hashes(text: str):
    with pytest.raises(AssertionError, match="neither a pinned version nor a hash"):
        read_lock(text)


def test_the_test_lock_adds_to_the_lock_and_changes_nothing():
    runtime, test = lock_file("requirements.lock"), lock_file("requirements-test.lock")
    assert {name: test.get(name) for name in runtime} == runtime


def test_every_dependency_is_locked():
    missing = declared() - EXTRAS - set(lock_file("requirements.lock"))
    assert not missing, f"run scripts/lock: {sorted(missing)} are not in requirements.lock"


def test_the_engines_tests_have_the_numerical_packages_of_the_others():
    engine, test = lock_file("requirements-flower.lock"), lock_file("requirements-test.lock")
    for name in ("jax", "jaxlib", "numpy", "scipy", "optax", "equinox", "opendp"):
        assert engine[name][0] == test[name][0]
    assert engine["flwr"][0] == "1.42.0"


def test_every_dependency_is_used():
    used = {
        name.split(".")[0]
        for source in all_sources()
        if source.in_package
        for _, name in source.imports
    }
    modules = {"scikit-learn": "sklearn", "umap-learn": "umap", "duckdb": "adbc_driver_duckdb"}
    idle = {name for name in declared() if modules.get(name, name.replace("-", "_")) not in used}
    assert not idle, f"pyproject.toml declares what nothing imports: {sorted(idle)}"


def test_the_wheel_is_whole(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("siloweave-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    package = {
        source.path.removeprefix("src/") for source in all_sources() if source.in_package
    } | {"siloweave/py.typed"}
    assert package <= inside
    folder = ROOT / "src" / "siloweave"
    parts_of_pages = {
        str(path.relative_to(folder.parent))
        for path in folder.rglob("*.*")
        if path.suffix in (".html", ".css", ".js")
    }
    assert {"siloweave/app/review.html", "siloweave/report/style.css"} <= parts_of_pages <= inside
    assert any(name.startswith("siloweave/datasets/") and "adult" in name for name in inside)
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert any(name.endswith("licenses/NOTICE") for name in inside)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in inside)


def test_the_embedded_table_is_attributed():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for words in ("Becker", "Kohavi", "1996", "10.24432/C5XW20", "CC BY 4.0"):
        assert words in notice


def test_the_version_is_the_same_everywhere():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert siloweave.__version__ == metadata["project"]["version"]


def test_the_conda_recipe_asks_for_what_the_metadata_ask_for():
    """Names that conda has otherwise would need a table here; there are none."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = metadata["project"]
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    host = re.search(r"^  host:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    python, pip, *backend = (one.replace(" ", "") for one in re.findall(r"- (.+)", host[1]))
    assert (python, pip) == (f"python{project['requires-python']}", "pip")
    assert backend == metadata["build-system"]["requires"]
    assert f"license_file: [{', '.join(project['license-files'])}]" in recipe
    run = re.search(r"^  run:\n((?:    - .+\n)+)", recipe, re.MULTILINE)
    asked = re.findall(r"- (.+)", run[1])
    python, *others = (line.replace(" ", "") for line in asked)
    assert python == f"python{project['requires-python']}"
    assert others == project["dependencies"]
    (script,) = project["scripts"].items()
    assert " = ".join(script) in recipe
    for fact in (f'version: "{project["version"]}"', f"license: {project['license']}"):
        assert fact in recipe
    assert f"summary: {project['description']}" in recipe


def test_the_image_copies_what_is_there_and_installs_what_is_locked():
    """Nobody needs a daemon for this: it is what a build would trip over first."""
    steps = re.sub(r" \\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    sources = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.+)$", steps, re.M)]
    copied = {name for names in sources for name in names}
    sent = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.M))
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    read_by_the_build = {project["project"]["readme"], *project["project"]["license-files"]}
    assert {"pyproject.toml", "src", *read_by_the_build} <= copied
    (lock,) = re.findall(r"--require-hashes -r (\S+)", steps)
    locked = lock_file(lock)
    first = [re.match(r"[\w-]+", one)[0] for one in project["build-system"]["requires"]]
    needed = [re.match(r"[\w-]+", one)[0] for one in project["project"]["dependencies"]]
    assert {*first, *needed, "flwr"} <= set(locked), "nothing is downloaded after the lock file"
    assert "--no-deps --no-build-isolation ." in steps
    after = steps[steps.rindex("FROM ") :]
    assert re.search(r"^USER [1-9]\d*$", after, re.M), "Kubernetes asks whether it is root's"
    assert "\nSTOPSIGNAL SIGINT\n" in after
    (out,) = re.findall(r"pip uninstall --yes (.+)$", steps, re.M)
    of_tests = [one for one in project["dependency-groups"]["engine"] if isinstance(one, str)]
    assert sorted(out.split()) == [re.match(r"[\w-]+", one)[0] for one in of_tests]
    assert re.search(r'^ENTRYPOINT \["siloweave"\]$', after, re.M)


def test_every_command_of_the_containers_is_one():
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    started = re.findall(r"^    command: (.+)$", text, re.M)
    typed = re.findall(r"--no-deps \w+ ([^#,\n]+?)(?= *(?:#|,|$))", text, re.M)
    assert (len(started), len(typed)) == (4, 2)
    for words in (*started, *typed):
        shown = CliRunner().invoke(app, [*words.split(), "--help"])
        assert shown.exit_code == 0, f"{words}: {shown.output}"
    wrong = CliRunner().invoke(app, [*started[0].split(), "--superlnk", "a", "--help"])
    assert wrong.exit_code != 0
    seen = dict(re.findall(r"^  (\w+):\n(?:    .+\n)*?    volumes: (.+)$", text, re.M))
    assert seen.pop("provision") == '[".:/siloweave/study"]'
    for name, folder in (("office", "coordinator"), ("north", "north"), ("south", "south")):
        own = f"./ends/{folder}:/siloweave/study/end"
        rows = f"./{name}.csv:/siloweave/study/rows.csv:ro"
        assert json.loads(seen.pop(name)) == ([own] if name == "office" else [own, rows])
    assert not seen


def test_a_node_in_a_container_has_a_socket_and_nothing_of_the_partys():
    text = (ROOT / "deploy" / "party-node" / "compose.yaml").read_text(encoding="utf-8")
    (started,) = re.findall(r"^    command: (.+)$", text, re.M)
    (typed,) = re.findall(r"^#   siloweave (.+)$", text, re.M)
    for words in (started, typed):
        shown = CliRunner().invoke(app, [*words.split(), "--help"])
        assert shown.exit_code == 0, f"{words}: {shown.output}"
    (volumes,) = re.findall(r"^ +volumes: (.+)$", text, re.M)
    assert json.loads(volumes) == ["./socket:/run/siloweave:ro", "./node:/siloweave/node"]
    assert f"--node-config={clientapp.SOCKET}='/run/siloweave/party.sock'" in text
    (user,) = re.findall(r'^  user: "(\d+):\d+"$', text, re.M)
    assert f"--node-user {user}" in typed
    assert text.count("<<: *node") == 2


def test_the_citation_names_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for field, fact in (
        ("title", "name"),
        ("abstract", "description"),
        ("version", "version"),
        ("license", "license"),
    ):
        assert f"\n{field}: {project[fact]}\n" in citation
    assert re.findall(r"^  - (?!name)(.+)", citation, re.MULTILINE) == project["keywords"]
    assert f"name: {project['authors'][0]['name']}\n" in citation
