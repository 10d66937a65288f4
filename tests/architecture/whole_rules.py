"""What holds of the package as a whole: no cycle, no name twice, no shred."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.architecture.import_rules import BESIDES, is_type_checking
from tests.architecture.source import Source

# Files that a single other file imports, each with the reason why it is one of its own.
ALONE: Mapping[str, str] = {
    "src/siloweave/app/cli.py": "the entry point that pyproject.toml names",
    "src/siloweave/app/console.py": "what commands print; cli.py is what they take",
    "src/siloweave/app/door.py": "what a party's process does; network_cli.py is what it takes",
    "src/siloweave/app/party_cli.py": "the commands of a party's owner; cli.py adds them",
    "src/siloweave/app/party_files.py": "the names that all of a party's files may have",
    "src/siloweave/app/policy.py": "one file of a party's folder, whoever reads it",
    "src/siloweave/federation/carriers/sealed.py": "one carrier among others; app/ has the posts",
    "src/siloweave/app/seen_ledgers.py": "copies of a folder, which no file in it can show",
    "src/siloweave/app/network.py": "the ends of a network; network_cli.py is what commands take",
    "src/siloweave/app/network_cli.py": "commands of a network; cli.py has those of one machine",
    "src/siloweave/app/run.py": "what a run does; check.py is what it needs before",
    "src/siloweave/app/sample.py": "conditions as texts, read by the schema",
    "src/siloweave/attacks/attack.py": "a function of the package's face",
    "src/siloweave/attacks/groundhog.py": "one paper's attack on sets of tables",
    "src/siloweave/attacks/inference.py": "one attack, one paper",
    "src/siloweave/attacks/inversion.py": "one attack, one paper",
    "src/siloweave/attacks/membership.py": "one attack, one paper",
    "src/siloweave/attacks/noisy_counts.py": "one attack, one paper",
    "src/siloweave/attacks/singling_out.py": "one attack, one paper",
    "src/siloweave/audit/transcripts.py": "functions of the package's face",
    "src/siloweave/core/conditional.py": "conditions, which models of both kinds meet",
    "src/siloweave/core/questions.py": "what a model answers besides rows; fit.py has its face",
    "src/siloweave/core/constrained.py": "constraints, which rows of every model keep",
    "src/siloweave/evaluate/discriminator.py": "one measure, with a learner of its own",
    "src/siloweave/evaluate/scores.py": "what a score is; scoring.py is how it is found",
    "src/siloweave/evaluate/scoring.py": "a function of the package's face",
    "src/siloweave/evaluate/similarity.py": "measures, which know no score",
    "src/siloweave/evaluate/support.py": "two measures, which know no score",
    "src/siloweave/federation/spool.py": "one transport; frames.py is what any of them carries",
    "src/siloweave/federation/flower.py": "all that imports Flower, for processes of its own",
    "src/siloweave/federation/gate.py": "bounds that know nothing of Flower, tested without it",
    "src/siloweave/models/copula.py": "one model, loaded when it is fitted",
    "src/siloweave/models/ctab.py": "one model, loaded when it is fitted",
    "src/siloweave/models/field_graph.py": "mathematics that know no party",
    "src/siloweave/models/pair_noise.py": "statistics that know no round; a plan uses them",
    "src/siloweave/models/private_gan.py": "one model, loaded when it is fitted",
    "src/siloweave/models/raking.py": "mathematics that know no fit",
    "src/siloweave/protocols/alignment.py": "functions of the package's face",
    "src/siloweave/protocols/secure_marginals.py": "a protocol, of any method over split columns",
    "src/siloweave/tables/recoding.py": "a function of the package's face",
    "src/siloweave/tables/statistical_files.py": "formats of three programs; read.py takes tables",
    "src/siloweave/tables/counted.py": "what a database counts; codes.py has what is in memory",
    "src/siloweave/tables/detect.py": "what a column seems to hold; schema.py is what is declared",
    "src/siloweave/tables/links.py": "what numbers of a row share; encodings.py codes one column",
    "src/siloweave/tables/relations.py": "what rows seem to keep; modelled.py keeps it",
    "src/siloweave/protocols/secure_products.py": "arithmetic and its proof, apart from messages",
}
_FACES = ("__init__.py", "__main__.py")
_METHOD_FILES = ("messages.py", "party.py", "coordinator.py", "method.py")  # DESIGN.md, section 3


def module_of(source: Source) -> str:
    """The dotted name of a file of the package."""
    dotted = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def graph(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Which modules each module imports, late imports too; not what is for type checkers alone.

    The package's face is left out: it loads a name's module when the name is used.
    """
    known = {module_of(source): source for source in sources if module_of(source) != "siloweave"}
    found: dict[str, set[str]] = {}
    for name, source in known.items():
        typed = {
            line
            for node in ast.walk(source.tree)
            if is_type_checking(node)
            for inner in ast.walk(node)
            if isinstance(inner, ast.ImportFrom | ast.Import)
            for line in [inner.lineno]
        }
        besides = tuple(f"siloweave.{layer}" for layer in BESIDES.get(source.path, ()))
        targets = {
            target if target in known else target.rpartition(".")[0]
            for line, target in source.imports
            if line not in typed and not (besides and target.startswith(besides))
        }
        found[name] = (targets & set(known)) - {name}
    return found


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected, of two or more)."""
    left = {name: set(targets) for name, targets in imports.items()}
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    while free := [n for n in left if not any(n in targets for targets in left.values())]:
        for name in free:
            del left[name]
    return [sorted(left)] if left else []


def names_twice(sources: Iterable[Source]) -> list[str]:
    """Public classes whose name stands in two files."""
    where = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(source.path)
    return [f"{name} in {', '.join(paths)}" for name, paths in where.items() if len(paths) > 1]


def shreds(sources: Iterable[Source], alone: Mapping[str, str] = ALONE) -> list[str]:
    """Files that one other file imports and that have no reason in `ALONE`."""
    sources = list(sources)
    importers = defaultdict(set)
    for name, targets in graph(sources).items():
        for target in targets:
            importers[target].add(name)
    found = []
    for source in sources:
        file = source.path.split("/")[-1]
        in_method = source.path.startswith("src/siloweave/methods/") and file in _METHOD_FILES
        if file in _FACES or in_method or source.path in alone:
            continue
        mine = importers[module_of(source)] - {"siloweave"}
        if len(mine) == 1:
            found.append(f"{source.path} is imported by {min(mine)} alone")
    return found
