"""PyG's GCN and APPNP as their users start out with them, trained on all labels for 200 epochs.

Two recipes, both with 64 hidden channels and Adam with learning rate 0.01; APPNP with 10 steps and teleport
0.1. ``"tutorial"``: features as they are, dropout before the second layer, weight decay 5e-4. ``"example"``:
rows of the features sum to one, dropout before both layers, weight decay on the first one.
"""

from torch import Tensor
from torch_geometric.data import Data

from baselines.training import NetworkTrainer, Recipe

MODELS = {"gcn": "GCN", "appnp": "APPNP"}
RECIPES = {"tutorial": Recipe(drop=(0.0, 0.5)), "example": Recipe(unit_rows=True, decay_last=False)}
EPOCHS = 200


def train_gnn(name: str, data: Data, seed: int, recipe: str = "tutorial") -> Tensor:
    """Predicted classes of all nodes.

    Args:
        name: One of ``MODELS``.
        data: The graph.
        seed: The seed of weights and dropout.
        recipe: One of ``RECIPES``.
    """
    return NetworkTrainer(data, MODELS[name]).train(RECIPES[recipe], seed, data.train_mask, epochs=EPOCHS).predicted
