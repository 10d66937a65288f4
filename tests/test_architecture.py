"""The project's structure, as rules that are tested on the project and on broken examples.

A rule is added in `tests/architecture/`, always together with files that it must catch.
"""

import pytest

from tests.architecture.import_rules import DOWNWARD, IMPORT_RULES
from tests.architecture.random_rules import LAWFUL, RANDOM_RULES
from tests.architecture.rule import Rule
from tests.architecture.shape_rules import SHAPE_RULES
from tests.architecture.source import ROOT, Source, all_sources
from tests.architecture.whole_rules import cycles, graph, names_twice

RULES = (*IMPORT_RULES, *RANDOM_RULES, *SHAPE_RULES)


def named(rule: Rule) -> str:
    return rule.name


def samples(kind: str) -> list[object]:
    """List every rule with each of its bad or good files, named for the test's report."""
    return [
        pytest.param(rule, Source(*sample), id=f"{rule.name}-{number}")
        for rule in RULES
        for number, sample in enumerate(getattr(rule, kind))
    ]


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_the_project_obeys(rule: Rule):
    problems = [problem for source in all_sources() for problem in rule.problems(source)]
    assert not problems, f"{rule.name}:\n  " + "\n  ".join(problems)


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_the_rule_looks_at_something(rule: Rule):
    assert any(rule.applies(source) for source in all_sources())
    assert rule.bad
    assert rule.good


@pytest.mark.parametrize(("rule", "source"), samples("bad"))
def test_the_rule_catches(rule: Rule, source: Source):
    problems = rule.problems(source)
    assert problems
    assert all(problem.startswith(source.path) for problem in problems)


@pytest.mark.parametrize(("rule", "source"), samples("good"))
def test_the_rule_lets_pass(rule: Rule, source: Source):
    assert rule.problems(source) == []


def test_imports_of_the_layers_make_no_circle():
    order: list[str] = []
    while len(order) < len(DOWNWARD):
        ready = [
            layer for layer, below in DOWNWARD.items() if layer not in order and below <= set(order)
        ]
        assert ready, f"the layers import each other: {sorted(set(DOWNWARD) - set(order))}"
        order += ready


PACKAGE = [source for source in all_sources() if source.in_package]


def test_no_modules_import_each_other():
    assert cycles(graph(PACKAGE)) == []
    ring = [
        Source(f"src/siloweave/tables/{a}.py", f"def f():\n    import siloweave.tables.{b}")
        for a, b in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"))
    ]
    assert cycles(graph(ring)) == [[f"siloweave.tables.{name}" for name in "abc"]]


def test_no_public_class_has_the_name_of_another():
    assert names_twice(PACKAGE) == []
    twice = [Source(f"src/siloweave/{name}.py", "class Plan: ...") for name in "ab"]
    assert names_twice(twice) == ["Plan in src/siloweave/a.py, src/siloweave/b.py"]


@pytest.mark.parametrize("path", sorted(LAWFUL))
def test_an_exception_that_nobody_needs_is_taken_back(path: str):
    rule = next(rule for rule in RULES if rule.name == "noise samplers only in privacy/")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert rule.problems(Source("src/siloweave/elsewhere.py", text))
