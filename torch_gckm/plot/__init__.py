"""Pictures of fitted models (extra ``plot``); every function draws on axes of matplotlib and returns them."""

from torch_gckm.plot.curves import eigenvalues, settings, training
from torch_gckm.plot.embedding import embedding
from torch_gckm.plot.withheld import confusion, reliability, withheld
from torch_gckm.select.withheld import Withheld

__all__ = ["Withheld", "confusion", "eigenvalues", "embedding", "reliability", "settings", "training", "withheld"]
