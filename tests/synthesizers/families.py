"""The registry's methods by family, for tests of what a family has in common."""

from typing import Any

from siloweave.algorithms.central import CentralGenerator
from siloweave.algorithms.columns_split import ColumnsSplit
from siloweave.algorithms.private_generators import PrivateGenerator
from siloweave.algorithms.private_rows_split import PrivateRowsSplit
from siloweave.algorithms.registry import METHODS
from siloweave.algorithms.rows_split import RowsSplit
from siloweave.algorithms.synthesizers import MarginalSynthesizer


def _family(base: type) -> dict[str, Any]:
    return {name: kind for name, kind in METHODS.items() if issubclass(kind, base)}


SYNTHESIZERS = _family(MarginalSynthesizer)
GENERATORS = _family(CentralGenerator)
PRIVATE_GENERATORS = _family(PrivateGenerator)
ROW_METHODS = _family(RowsSplit)
PRIVATE_ROW_METHODS = _family(PrivateRowsSplit)
COLUMN_METHODS = _family(ColumnsSplit)
