"""The registry's methods by family, for tests of what a family has in common."""

from typing import Any

from siloweave.methods.central.method import CentralGenerator
from siloweave.methods.dp_sgd.method import PrivateGenerator, PrivateRowsSplit
from siloweave.methods.fed_tgan.method import RowsSplit
from siloweave.methods.registry import METHODS
from siloweave.protocols.columns import ColumnsSplit
from siloweave.protocols.marginals import MarginalSettings


def _family(base: type) -> dict[str, Any]:
    return {name: kind for name, kind in METHODS.items() if issubclass(kind, base)}


SYNTHESIZERS = _family(MarginalSettings)
GENERATORS = _family(CentralGenerator)
PRIVATE_GENERATORS = _family(PrivateGenerator)
ROW_METHODS = _family(RowsSplit)
PRIVATE_ROW_METHODS = _family(PrivateRowsSplit)
COLUMN_METHODS = _family(ColumnsSplit)
