"""Graphs with real targets or several labels per node, and what other methods predict for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from torch_gckm.datasets import load
from torch_gckm.graph import Propagation
from torch_gckm.neighbours import nearest_edges

Array = NDArray[np.float64]
GRAPHS = ("pubmed", "digits", "diabetes", "friedman")
_LOOPS = (0, 4, 6, 8, 9)  # Digits that are usually drawn with a closed loop; the 4 of this collection often is.
_PUBMED_COLUMNS = (0, 10, 20)  # Places among the columns, by how many nodes use the term.


def graph(name: str, root: str | Path | None = None) -> Data:
    """A graph with all of its targets, ``[n, p]``; what they are made of is not among the features."""
    if name == "pubmed":
        data = load("pubmed", root)
        x = data.x.to_dense() if data.x.layout != torch.strided else data.x
        order = (x != 0).sum(dim=0).argsort(descending=True, stable=True)
        held = order[list(_PUBMED_COLUMNS)]
        kept = torch.ones(x.size(1), dtype=torch.bool).index_fill(0, held, False)
        return Data(x=x[:, kept], edge_index=data.edge_index, y=x[:, held].double())
    if name == "digits":  # The ink in the last three rows of an image, from the other five.
        images = load("digits").x.view(-1, 8, 8)
        x, y = images[:, :5].reshape(-1, 40), images[:, 5:].reshape(-1, 24).mean(dim=1)
    elif name == "diabetes":
        rows, target = load_diabetes(return_X_y=True)
        x, y = torch.tensor(rows), torch.tensor(target)
    else:
        rows, target = make_friedman1(1000, noise=1.0, random_state=0)
        x, y = torch.tensor(rows), torch.tensor(target)
    scaled = StandardScaler().fit_transform(x.double().numpy()).astype(np.float32)
    return Data(x=torch.from_numpy(scaled), edge_index=nearest_edges(scaled, 10), y=y.double().unsqueeze(1))


def digits_with_attributes() -> Data:
    """The digits; is a digit even, has it a loop, is it greater than 4? ``y`` is ``[n, 3]`` of 0 and 1."""
    data = load("digits")
    loops = torch.isin(data.y, torch.tensor(_LOOPS))
    y = torch.stack([data.y % 2 == 0, loops, data.y > 4], dim=1).long()
    return Data(x=data.x, edge_index=data.edge_index, y=y)


def with_labels(data: Data, count: int, seed: int) -> Data:
    """The graph with a ``train_mask`` of so many random nodes."""
    chosen = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))[:count]
    mask = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill(0, chosen, True)
    return Data(x=data.x, edge_index=data.edge_index, y=data.y, train_mask=mask)


def propagated(data: Data) -> Array:
    """Features after two hops of a GCN's propagation."""
    return np.asarray(Propagation("gcn", 2)(data.x, data.edge_index).double().numpy())


def kernel_ridge(data: Data, x: Array | None = None) -> Array:
    """Bandwidth and regularisation by cross-validation on the labelled nodes."""
    x = data.x.double().numpy() if x is None else x
    mask, spread = data.train_mask.numpy(), x.var() * x.shape[1]
    grid = {"gamma": list(np.array([0.03, 0.1, 0.3, 1.0, 3.0]) / (2 * spread)), "alpha": [0.01, 0.1, 1.0, 10.0]}
    return _searched(KernelRidge(kernel="rbf"), grid, x, data.y.numpy(), mask)


def nearest(data: Data) -> Array:
    """The number of neighbours by cross-validation on the labelled nodes."""
    grid: dict[str, Any] = {"n_neighbors": [1, 2, 3, 5, 8], "weights": ["uniform", "distance"]}
    return _searched(KNeighborsRegressor(), grid, data.x.double().numpy(), data.y.numpy(), data.train_mask.numpy())


def _searched(method: object, grid: dict[str, Any], x: Array, y: Array, mask: NDArray[np.bool_]) -> Array:
    mean, spread = y[mask].mean(axis=0), y[mask].std(axis=0) + 1e-12
    found = GridSearchCV(method, grid, scoring="neg_mean_squared_error", cv=5).fit(x[mask], (y[mask] - mean) / spread)
    return np.asarray(found.predict(x).reshape(y.shape) * spread + mean)


def forest(data: Data) -> Array:
    """300 trees."""
    mask, x, y = data.train_mask.numpy(), data.x.numpy(), data.y.numpy()
    fitted = RandomForestRegressor(300, random_state=0).fit(x[mask], y[mask].squeeze())
    return np.asarray(fitted.predict(x).reshape(y.shape))


def gcn(data: Data, epochs: int = 200) -> Array:
    """PyG's GCN with two layers, on standardised targets."""
    torch.manual_seed(0)
    known = data.y[data.train_mask].float()
    mean, spread = known.mean(dim=0), known.std(dim=0) + 1e-12
    model = GCN(data.num_features, 64, num_layers=2, out_channels=known.size(1), dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.mse_loss(out, (known - mean) / spread).backward()
        optimizer.step()
    with torch.no_grad():
        return np.asarray((model.eval()(data.x, data.edge_index) * spread + mean).double().numpy())


def one_vs_rest(data: Data, x: Array) -> tuple[Array, Array]:
    """Classes and probabilities ``[n, L]`` of one logistic regression per label; regularisation by cross-validation."""
    mask, y = data.train_mask.numpy(), data.y.numpy()
    probabilities = np.empty(y.shape)
    for column in range(y.shape[1]):
        fitted = LogisticRegressionCV(Cs=10, cv=3, max_iter=2000, use_legacy_attributes=False, l1_ratios=(0,))
        probabilities[:, column] = fitted.fit(x[mask], y[mask, column]).predict_proba(x)[:, 1]
    return (probabilities > 0.5).astype(float), probabilities


def r2(predicted: Array, y: Tensor, mask: Tensor) -> float:
    """The coefficient of determination on some nodes, the mean over the columns."""
    true, guess = y[mask].numpy(), predicted[mask.numpy()]
    return float((1.0 - ((true - guess) ** 2).sum(axis=0) / ((true - true.mean(axis=0)) ** 2).sum(axis=0)).mean())
