"""Models: pure mathematics, fit and sample. They know of no party and no privacy."""

from siloweave.models.estimate import Measurement, fit
from siloweave.models.junction_tree import JunctionTree, maximal_cliques, tree_cells
from siloweave.models.mrf import MRF

__all__ = ["MRF", "JunctionTree", "Measurement", "fit", "maximal_cliques", "tree_cells"]
