"""What a rule is: a check, where it applies, and the evidence that it works."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.architecture.source import Source

Check = Callable[[Source], list[str]]


@dataclass(frozen=True)
class Rule:
    """One structural rule.

    `bad` holds files that the rule must catch, so that it cannot rot into a test that never
    fails; `good` holds close relatives that it must let pass. Both map a path to a text.
    """

    name: str
    check: Check
    applies: Callable[[Source], bool]
    bad: tuple[tuple[str, str], ...]
    good: tuple[tuple[str, str], ...]

    def problems(self, source: Source) -> list[str]:
        """Return this rule's problems in one file, each starting with path and line."""
        return self.check(source) if self.applies(source) else []


def package_code(source: Source) -> bool:
    """Apply to the package itself."""
    return source.in_package


def all_code(source: Source) -> bool:
    """Apply to every Python file: package, tests and benchmarks."""
    return source.is_python


def any_text(source: Source) -> bool:
    """Apply to every text file."""
    return bool(source.path)


def algorithm_file(source: Source) -> bool:
    """Apply to what states a guarantee: the record of a method, and every protocol."""
    if not source.in_package or source.path.endswith("__init__.py"):
        return False
    return source.layer == "protocols" or source.path.endswith("/method.py")
