"""Attributes of fitted estimators are in their docstrings, and so on the pages about them."""

import re

import pytest

from torch_gckm import GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor


@pytest.mark.parametrize("estimator", [
    GCKMClassifier(budget=0.3, progress=False), GCKMRegressor(budget=0.3, progress=False), GCKMClustering(3),
    GCKMEmbedding((4, 3)),
], ids=lambda estimator: type(estimator).__name__)  # fmt: skip
def test_fitted_attributes_are_documented(estimator, graph):
    if isinstance(estimator, GCKMRegressor):
        graph.y = graph.x[:, 0]
    estimator.fit(graph)
    documented = re.search(r"Attributes:\n(.*)", type(estimator).__doc__, flags=re.DOTALL)[1]
    fitted = {name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")}
    assert len(fitted) >= 5
    assert {name for name in fitted if not re.search(rf"\b{name}\b", documented)} == set()
