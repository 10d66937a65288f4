"""Lines that a stranger reads: names say what a value is, and a docstring's head is a sentence.

How many lines a file has is not checked.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "siloweave"

#: Folders, and files beside them, in each of which these rules hold.
PARTS = sorted(
    path.name
    for path in SOURCE.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
)

#: Words that say that there is a value, and not what it is.
VAGUE = {
    *("found", "one", "own", "known", "kept", "asked", "made", "gone", "seen", "drawn", "held"),
    *("there", "left", "given", "other", "taken", "said", "what", "both", "here"),
}
MOST_VAGUE, MOST_TUPLES = 0.01, 0.02

#: What a function's docstring begins with.
VERBS = {
    *("Add", "Adjust", "Agree", "Align", "Alternate", "Announce", "Answer", "Append"),
    *("Apply", "Ask", "Attack", "Average", "Await", "Be", "Begin", "Blank", "Bound"),
    *("Bring", "Build", "Call", "Carry", "Charge", "Check", "Choose", "Clip", "Close"),
    *("Code", "Collect", "Colour", "Combine", "Compare", "Complete", "Compute"),
    *("Connect", "Continue", "Convert", "Convolve", "Copy", "Correlate", "Count", "Cut"),
    *("Deal", "Decide", "Decode", "Decrypt", "Derive", "Describe", "Detect", "Dial"),
    *("Divide", "Do", "Drain", "Draw", "Drop", "Earn", "Echo", "Eliminate", "Emit"),
    *("Encode", "Encrypt", "End", "Enter", "Escape", "Estimate", "Evaluate", "Exchange"),
    *("Exclude", "Expand", "Explain", "Export", "Extend", "Fetch", "Fill", "Find", "Fit"),
    *("Flatten", "Forecast", "Form", "Freeze", "Gather", "Generate", "Give", "Grade"),
    *("Group", "Guess", "Hand", "Hash", "Have", "Hide", "Hold", "Import", "Impute"),
    *("Index", "Interpolate", "Invert", "Iterate", "Join", "Judge", "Keep", "Label"),
    *("Lay", "Learn", "Leave", "Lend", "Let", "Lift", "Limit", "Link", "List", "Load"),
    *("Locate", "Lock", "Look", "Lower", "Make", "Map", "Mark", "Mask", "Match"),
    *("Maximise", "Measure", "Mend", "Merge", "Mix", "Move", "Multiply", "Name"),
    *("Normalise", "Note", "Number", "Open", "Order", "Overwrite", "Pack", "Pad", "Part"),
    *("Partition", "Pass", "Pay", "Peek", "Permute", "Pick", "Place", "Plan", "Play"),
    *("Plot", "Poll", "Pool", "Predict", "Prepare", "Price", "Print", "Probe", "Propose"),
    *("Put", "Quote", "Raise", "Rake", "Randomise", "Rank", "Read", "Rebuild", "Recall"),
    *("Receive", "Recognise", "Record", "Recover", "Reduce", "Refuse", "Register"),
    *("Reject", "Release", "Remember", "Remove", "Render", "Replace", "Report"),
    *("Require", "Reset", "Resolve", "Restore", "Resume", "Retry", "Return", "Rewrite"),
    *("Root", "Round", "Run", "Sample", "Save", "Say", "Scale", "Scan", "Score", "Seal"),
    *("Search", "Select", "Send", "Serve", "Set", "Share", "Show", "Sign", "Single"),
    *("Size", "Sketch", "Skip", "Sleep", "Smooth", "Solve", "Sort", "Spend", "Split"),
    *("Spread", "Square", "Stack", "Standardise", "Start", "Stop", "Store", "Strip"),
    *("Subtract", "Sum", "Summarise", "Swap", "Take", "Test", "Thin", "Tighten", "Time"),
    *("Trace", "Train", "Translate", "Transpose", "Triangulate", "Try", "Turn", "Undo"),
    *("Unpack", "Unwrap", "Update", "Use", "Validate", "Verify", "Visit", "Vote", "Wait"),
    *("Walk", "Warn", "Weave", "Weigh", "Widen", "Wrap", "Write", "Yield"),
}

#: Heads of docstrings that say nothing without the name before them.
TAILS = [
    "Of both, one after the other.",
    "What is said of 999 or -99 far from all others, and of -7, -8 and -9 alone below 0.",
    "A party's rows; where a method only counts them, what is large stays where it is.",
    "How a word is read in a text file whose encoding was taken to be cp1252; else empty.",
    "The fewest decimals of numbers that have so many, and of those that end with a zero.",
    "The words of a column's name, without a subject that is taught to more pupils than these.",
    "Columns without a number where they stand among the modes; NaN for the others.",
    "That of the ledger that a party began with in a study's folder; empty if it did not.",
]


def files(entry: str) -> list[Path]:
    path = SOURCE / entry
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def assigned_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of local variables, parameters and loop variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def is_two_in_one(node: ast.AST) -> bool:
    """Return whether an assignment gives several names values that are several, too."""
    if not isinstance(node, ast.Assign):
        return False
    if len(node.targets) > 1:
        return True
    is_tuple = isinstance(node.targets[0], ast.Tuple)
    return is_tuple and isinstance(node.value, ast.Tuple | ast.GeneratorExp)


def heads(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each function's name, and the first line of its docstring; not those of properties."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and not any("property" in ast.unparse(mark) for mark in node.decorator_list):
            yield node.name, text.splitlines()[0]


def begins_with_a_verb(head: str) -> bool:
    return head.split()[0].rstrip(",") in VERBS


@pytest.mark.parametrize("entry", PARTS)
def test_names_say_what_a_value_is(entry):
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files(entry)}
    names = [(path, name) for path, tree in trees.items() for name in assigned_names(tree)]
    vague = [f"{path.name}: {name}" for path, name in names if name in VAGUE]
    assert len(vague) <= MOST_VAGUE * len(names), vague


@pytest.mark.parametrize("entry", PARTS)
def test_a_line_assigns_one_thing(entry):
    count = 0
    places = []
    for path in files(entry):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            count += isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
            if is_two_in_one(node):
                places.append(f"{path.name}:{node.lineno}")
    assert len(places) <= MOST_TUPLES * count, places


@pytest.mark.parametrize("entry", PARTS)
def test_a_docstring_begins_with_a_verb(entry):
    """One that says something by itself; another verb than these is added to `VERBS`."""
    odd = [
        f"{path.name}, {name}: {head}"
        for path in files(entry)
        for name, head in heads(ast.parse(path.read_text("utf-8")))
        if not begins_with_a_verb(head)
    ]
    assert odd == []


@pytest.mark.parametrize("head", TAILS)
def test_a_tail_of_the_name_is_caught(head):
    assert not begins_with_a_verb(head)


def test_each_rule_catches_what_it_is_for():
    lines = [
        "def f(one):",
        '    """Of a row."""',
        "    a, b = 1, 2",
        "    for kept in one:",
        "        c = d = 1",
    ]
    text = "\n".join(lines)
    tree = ast.parse(text)
    assert VAGUE & set(assigned_names(tree)) == {"one", "kept"}
    assert sum(map(is_two_in_one, ast.walk(tree))) == 2
    assert not is_two_in_one(ast.parse("low, high = bounds").body[0])
    assert list(heads(tree)) == [("f", "Of a row.")]


def test_what_was_read_is_there():
    assert all(files(entry) and files(entry)[0].is_file() for entry in PARTS)
    assert not [word for word in VERBS if not re.fullmatch(r"[A-Z][a-z]+", word)]
