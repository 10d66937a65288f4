"""Who may import what."""

import ast
import re
import sys
import tomllib

from tests.architecture.rule import Rule, all_code, package_code
from tests.architecture.source import ROOT, Source, is_import_call, within

_BELOW_PROTOCOLS = (
    *("tables", "datasets", "statistics", "models", "evaluate", "attacks"),
    *("privacy", "federation"),
)
# Layer -> the layers it may import, itself, `errors` and `progress` apart.
DOWNWARD = {
    "errors": set(),
    "progress": set(),
    "tables": set(),
    "datasets": {"tables"},
    "statistics": {"tables"},
    "models": {"tables", "statistics"},
    "evaluate": {"tables", "statistics", "models", "report"},
    "attacks": {"tables", "statistics", "models", "evaluate", "report"},
    "privacy": set(),
    "federation": {"tables", "privacy"},
    "report": set(),
    "core": {"tables", "statistics", "models", "privacy", "federation"},
    "protocols": {*_BELOW_PROTOCOLS, "core"},
    "methods": {*_BELOW_PROTOCOLS, "core", "protocols"},
    "audit": {*_BELOW_PROTOCOLS, "core", "protocols", "methods"},
    "app": {*_BELOW_PROTOCOLS, "core", "protocols", "methods", "audit", "report"},
}
FRAMES = ("polars", "pandas", "narwhals", "pyarrow")
_FRAME_MODULES = (
    *("read", "write", "table", "origin", "joining", "native_types", "decimals"),
    *("files", "dialect", "text_encoding", "text_files", "spreadsheets", "statistical_files"),
    *("database", "counted", "parsing", "cells"),
)
FRAME_FILES = tuple(f"src/siloweave/tables/{name}.py" for name in _FRAME_MODULES)
PICKLES = (
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"),
    *("numpy.load", "numpy.save", "numpy.savez", "numpy.savez_compressed"),
)
# Imported when first needed, so that `siloweave --help` answers at once.
LATE = (
    *("sklearn", "umap", "opendp", "pandas", "pyarrow", "flwr", "mbi", "matplotlib"),
    *(
        "duckdb",
        "adbc_driver_duckdb",
        "adbc_driver_manager",
        "adbc_driver_postgresql",
        "fastexcel",
        "pyreadstat",
    ),
)
# Slow as well, and what whole files are written in; so these files are imported late themselves.
ARRAYS = ("jax", "equinox", "optax")
NEURAL = (
    *("nets", "train", "sphere_codes"),
    *("gan", "private_gan", "gan_networks", "conditional", "ctab", "vertigan"),
    *("diffusion", "denoiser", "autoencoder", "coders", "latent", "rounds", "stepwise"),
)
ARRAY_FILES = {
    *(f"siloweave.models.{name}" for name in NEURAL),
    "siloweave.privacy.gradients",
}
# Not dependencies: native_types.py meets these only when the user's own frame is one.
GUESTS = {"pandas", "pyarrow"}
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "adbc_driver_duckdb": "duckdb",
}


def layers(source: Source) -> list[str]:
    """Each folder imports only what lies below it."""
    layer = source.layer
    if source.path.count("/") == 2:  # files at the package's root join the layers
        if layer not in {"errors", "progress"}:
            return []
    elif layer not in DOWNWARD:
        return [f"{source.path}: folder '{layer}' has no import rule: add it to DOWNWARD"]
    allowed = {layer, "errors", "progress", *DOWNWARD[layer]}
    if layer == "app":
        allowed |= {"", "__version__"}
    problems = []
    for line, name in source.imports:
        if not within(name, "siloweave"):
            continue
        target = [*name.split("."), ""][1]
        if target not in allowed:
            permitted = ", ".join(sorted(allowed))
            problems.append(
                f"{source.path}:{line}: {layer} imports {name}; it may import only: {permitted}"
            )
    return problems


def methods_apart(source: Source) -> list[str]:
    """A method imports no other method: what two share is a protocol or a model."""
    own = source.path.removeprefix("src/siloweave/methods/").split("/")[0]
    return [
        f"{source.path}:{line}: method {own!r} imports {name}: put what both need in protocols/"
        for line, name in source.imports
        if within(name, "siloweave.methods") and not within(name, f"siloweave.methods.{own}")
    ]


_METHOD_CLASS = re.compile(r"siloweave\.methods\.(\w+\.method|registry)\.")


def asks_for_methods(source: Source) -> list[str]:
    """Nothing asks of which method or family an object is: the record says what it does."""
    kinds = ("Synthesizer", "Method")
    return [
        f"{source.path}:{node.lineno}: asks isinstance of {word}: read its record instead"
        for node, _ in source.calls()
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")
        for word in {ast.unparse(one) for arg in node.args[1:] for one in ast.walk(arg)}
        if word in kinds or re.match(_METHOD_CLASS, source.names.get(word, ""))
    ]


def method_folder(source: Source) -> bool:
    """Apply to the files of methods, not to their registry."""
    return (
        source.in_package
        and source.path.startswith("src/siloweave/methods/")
        and (source.path.count("/") == 4)
    )


def outside_core(source: Source) -> bool:
    """Apply to the package but for core/."""
    return source.in_package and source.layer != "core"


def computed_imports(source: Source) -> list[str]:
    """A module is imported by a name that can be read, or the other rules would miss it."""
    return [
        f"{source.path}:{node.lineno}: imports a module by a computed name: spell it out"
        for node, _ in source.calls()
        if is_import_call(node) and not (node.args and isinstance(node.args[0], ast.Constant))
    ]


def pickle_family(source: Source) -> list[str]:
    """Nothing that can run code when it is loaded."""
    problems = [
        f"{source.path}:{line}: uses {name}: data is stored as safetensors or JSON, never pickled"
        for line, name in source.references()
        if within(name, *PICKLES) or name.endswith((".to_pickle", ".read_pickle"))
    ]
    for node, _ in source.calls():
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in {"to_pickle", "read_pickle"}:
            problems.append(f"{source.path}:{node.lineno}: calls {method}: never pickle")
        if any(word.arg == "allow_pickle" for word in node.keywords):
            problems.append(f"{source.path}:{node.lineno}: passes allow_pickle: never pickle")
    return problems


def dataframes(source: Source) -> list[str]:
    """Frames come in and go out through files of tables/."""
    allowed = ", ".join(FRAME_FILES)
    return [
        f"{source.path}:{line}: imports {name}: frames are read and written only in {allowed}"
        for line, name in source.imports
        if within(name, *FRAMES) and source.path not in FRAME_FILES
    ]


def flower(source: Source) -> list[str]:
    """Flower is one transport among others."""
    return [
        f"{source.path}:{line}: imports {name}: Flower belongs in federation/flower.py alone"
        for line, name in source.imports
        if within(name, "flwr") and source.path != "src/siloweave/federation/flower.py"
    ]


def late_imports(source: Source) -> list[str]:
    """Slow libraries are imported by the function that needs them."""
    late = {
        id(inner)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        for inner in ast.walk(node)
    }
    own = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    slow = LATE if own in ARRAY_FILES else (*LATE, *ARRAYS, *ARRAY_FILES)
    problems = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Import | ast.ImportFrom) or id(node) in late:
            continue
        start = "" if isinstance(node, ast.Import) else f"{source.absolute(node)}."
        problems += [
            f"{source.path}:{node.lineno}: imports {start}{name.name} when the module loads: "
            "it is slow or optional, so import it inside the function that needs it"
            for name in node.names
            if within(start + name.name, *slow)
        ]
    return problems


def is_type_checking(node: ast.AST) -> bool:
    """Tell whether a node is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def declared() -> set[str]:
    """Read the names of all run-time and optional dependencies from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    wanted = [*project["dependencies"], *(item for extra in extras for item in extra)]
    return {item.split(">")[0].split("=")[0].split("<")[0].split("[")[0] for item in wanted}


def undeclared(source: Source) -> list[str]:
    """What the package imports, its metadata names."""
    known = declared()
    problems = []
    for line, name in source.imports:
        top = name.split(".")[0]
        own = top in sys.stdlib_module_names or top == "siloweave" or top in GUESTS
        if not own and DISTRIBUTIONS.get(top, top.replace("_", "-")) not in known:
            problems.append(
                f"{source.path}:{line}: imports {name}, which pyproject.toml does not declare"
            )
    return problems


IMPORT_RULES = (
    Rule(
        "folders import only downwards",
        layers,
        package_code,
        bad=(
            ("src/siloweave/tables/x.py", "import siloweave.privacy.ledger"),
            ("src/siloweave/tables/x.py", "def f():\n    from siloweave import privacy"),
            ("src/siloweave/privacy/x.py", "from siloweave.tables import Schema"),
            ("src/siloweave/models/x.py", "from ..evaluate import error"),
            ("src/siloweave/federation/x.py", "from siloweave.methods.aim.method import AIM"),
            ("src/siloweave/statistics/x.py", "__import__('siloweave.models.mrf')"),
            ("src/siloweave/core/x.py", "from siloweave.methods.registry import METHODS"),
            ("src/siloweave/protocols/x.py", "from siloweave.methods.aim import party"),
            ("src/siloweave/core/run.py", "from siloweave.app.report import record_of"),
            ("src/siloweave/report/x.py", "from siloweave import run"),
            ("src/siloweave/errors.py", "from siloweave.tables import Schema"),
            ("src/siloweave/progress.py", "from siloweave.tables import Schema"),
            ("src/siloweave/novelty/x.py", "pass"),
        ),
        good=(
            ("src/siloweave/tables/x.py", "from siloweave.errors import SchemaError"),
            ("src/siloweave/models/x.py", "from siloweave.tables.codes import Codes"),
            ("src/siloweave/federation/x.py", "from ..privacy import ledger"),
            ("src/siloweave/app/cli.py", "from siloweave.methods import registry"),
        ),
    ),
    Rule(
        "no method imports a method",
        methods_apart,
        method_folder,
        bad=(
            ("src/siloweave/methods/a/party.py", "from siloweave.methods.b.party import f"),
            (
                "src/siloweave/methods/a/method.py",
                "def f():\n    import siloweave.methods.b.method",
            ),
        ),
        good=(
            ("src/siloweave/methods/a/party.py", "from siloweave.methods.a.messages import Ask"),
            ("src/siloweave/methods/a/party.py", "from siloweave.protocols import secure_sums"),
        ),
    ),
    Rule(
        "nobody asks of which method something is",
        asks_for_methods,
        outside_core,
        bad=(
            ("src/siloweave/app/x.py", "def f(s):\n    return isinstance(s, Synthesizer)"),
            (
                "src/siloweave/app/x.py",
                "from siloweave.methods.aim.method import AIM\nok = issubclass(int, (str, AIM))",
            ),
        ),
        good=(
            ("src/siloweave/app/x.py", "def f(s):\n    return isinstance(s, dict)"),
            ("src/siloweave/core/run.py", "def f(s):\n    return isinstance(s, Synthesizer)"),
        ),
    ),
    Rule(
        "no import by a computed name",
        computed_imports,
        package_code,
        bad=(("src/siloweave/x.py", "import importlib\nimportlib.import_module('a' + b)"),),
        good=(("src/siloweave/x.py", "import importlib\nimportlib.import_module('json')"),),
    ),
    Rule(
        "nothing of the pickle family",
        pickle_family,
        all_code,
        bad=(
            ("src/siloweave/x.py", "import pickle"),
            ("tests/x.py", "def f():\n    from joblib import dump"),
            ("benchmarks/x.py", "import numpy as np\nnp.load('x.npy', allow_pickle=True)"),
            ("benchmarks/x.py", "import numpy as np\nnp.load('x.npy')"),
            ("src/siloweave/x.py", "frame.to_pickle('x')"),
            ("src/siloweave/x.py", "__import__('dill')"),
        ),
        good=(("src/siloweave/x.py", "import json\nfrom safetensors.numpy import load"),),
    ),
    Rule(
        "data frames only where tables are read",
        dataframes,
        package_code,
        bad=(
            ("src/siloweave/evaluate/x.py", "import pandas as pd"),
            ("src/siloweave/tables/codes.py", "def f():\n    from polars import DataFrame"),
            ("src/siloweave/cli.py", "import pyarrow.parquet"),
        ),
        good=((FRAME_FILES[0], "import narwhals"), ("src/siloweave/cli.py", "import numpy")),
    ),
    Rule(
        "Flower only in federation/flower.py",
        flower,
        all_code,
        bad=(("src/siloweave/federation/site.py", "from flwr.common import Context"),),
        good=(("src/siloweave/federation/flower.py", "def f():\n    import flwr"),),
    ),
    Rule(
        "slow imports only inside functions",
        late_imports,
        package_code,
        bad=(
            ("src/siloweave/evaluate/x.py", "from sklearn.ensemble import X"),
            ("src/siloweave/privacy/x.py", "try:\n    import opendp.prelude as dp\nfinally: ..."),
            ("src/siloweave/models/mrf.py", "import jax.numpy as jnp"),
            ("src/siloweave/methods/x/party.py", "from siloweave.models.gan import CTGAN"),
            ("src/siloweave/methods/x/party.py", "from siloweave.models import diffusion"),
        ),
        good=(
            ("src/siloweave/privacy/x.py", "def f():\n    import opendp.prelude as dp"),
            ("src/siloweave/x.py", "if TYPE_CHECKING:\n    from sklearn.base import X"),
            ("src/siloweave/models/gan.py", "import jax\nfrom siloweave.models.nets import MLP"),
        ),
    ),
    Rule(
        "every library imported is declared",
        undeclared,
        package_code,
        bad=(("src/siloweave/x.py", "def f():\n    import torch"),),
        good=(("src/siloweave/x.py", "import json\nimport numpy\nimport sklearn.cluster"),),
    ),
)
