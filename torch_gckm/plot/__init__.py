"""Pictures of fitted models (extra ``plot``); every function draws on axes of matplotlib and returns them."""

from torch_gckm.plot.confusion import confusion
from torch_gckm.plot.eigenvalues import eigenvalues
from torch_gckm.plot.embedding import embedding
from torch_gckm.plot.reliability import reliability
from torch_gckm.plot.settings import settings
from torch_gckm.plot.training import training
from torch_gckm.plot.withheld import Withheld, withheld

__all__ = ["Withheld", "confusion", "eigenvalues", "embedding", "reliability", "settings", "training", "withheld"]
