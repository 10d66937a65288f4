"""The registry's methods by family, for tests of what a family has in common."""

from dataclasses import fields

from siloweave.methods.registry import METHODS
from tests.methods.direct.method import Direct


def _those(split: str, *guarantees: str, graphical: bool = False) -> dict[str, type]:
    return {
        name: kind
        for name, kind in METHODS.items()
        if (kind.method.family == "graphical model") is graphical
        and (
            "workload" in [one.name for one in fields(kind)]
            if graphical
            else split == kind.method.split
        )
        and kind().info.guarantee in guarantees
    }


def takes_target(kind: type) -> bool:
    """Whether a class has a setting of that name."""
    return "target" in [one.name for one in fields(kind)]


SYNTHESIZERS = _those("any", "dp", graphical=True) | {"direct": Direct}
"""Those of marginals, and the method that CONTRIBUTING adds: a folder and a line."""
GENERATORS = _those("central", "none")
PRIVATE_GENERATORS = _those("central", "dp")
ROW_METHODS = _those("rows", "none")
PRIVATE_ROW_METHODS = _those("rows", "dp")
COLUMN_METHODS = _those("columns", "dp", "none")
