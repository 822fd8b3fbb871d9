r"""Support vector machines with kernels of features, of the graph, and of both.

``SVM-RBF``: :math:`\exp(-\gamma |x_u - x_v|^2)`. ``SVM-DIFF``: the diffusion kernel :math:`\exp(-\beta L)` of the
normalised Laplacian. ``SVM-WWL``: the Wasserstein-Weisfeiler-Lehman kernel, on nodes
:math:`\exp(-\gamma |f_u - f_v|)` with :math:`f` the features of 0 to :math:`h` steps
:math:`f \leftarrow (f + \text{mean of neighbours}) / 2`, from columns of unit spread.
``SVM-GCKN``: the walk kernel of ``walks.py``.

Only the columns of labelled nodes are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import expm_multiply
from sklearn.svm import SVC
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import get_laplacian, scatter, to_scipy_sparse_matrix

from baselines.walks import walk_columns

POWERS = range(-5, 6)
STEPS = 5
Columns = Iterator[tuple[dict[str, float], np.ndarray]]


def rbf_columns(data: Data, nodes: Tensor) -> Columns:
    """Kernel columns of some nodes, by setting."""
    x = data.x.to_dense().double()
    squared = torch.cdist(x, x[nodes]).square().numpy()
    for power in POWERS:
        yield {"gamma": 10.0**power}, np.exp(-(10.0**power) * squared)


def diffusion_columns(data: Data, nodes: Tensor) -> Columns:
    """Kernel columns of some nodes, by setting; each step goes on from the one before."""
    index, weight = get_laplacian(data.edge_index, data.edge_weight, "sym", num_nodes=data.num_nodes)
    laplacian = scipy.sparse.csr_matrix(to_scipy_sparse_matrix(index, weight.double(), data.num_nodes))
    columns = np.zeros((data.num_nodes, len(nodes)))
    columns[nodes.numpy(), np.arange(len(nodes))] = 1.0
    before = 0.0
    for beta in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0):
        columns = expm_multiply(-(beta - before) * laplacian, columns, traceA=-(beta - before) * laplacian.trace())
        before = beta
        yield {"beta": beta}, columns


def wwl_columns(data: Data, nodes: Tensor) -> Columns:
    """Kernel columns of some nodes, by setting."""
    x = data.x.to_dense().double()
    spread = x.std(dim=0)
    f = (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    source, target = data.edge_index
    squared = torch.zeros(data.num_nodes, len(nodes), dtype=torch.float64)
    for step in range(STEPS + 1):
        squared += torch.cdist(f, f[nodes]).square()
        distance = squared.sqrt().numpy()
        for power in POWERS:
            yield {"steps": step, "gamma": 10.0**power}, np.exp(-(10.0**power) * distance)
        f = (f + scatter(f[source], target, dim_size=data.num_nodes, reduce="mean")) / 2


KERNELS: dict[str, Callable[[Data, Tensor], Columns]] = {
    "SVM-RBF": rbf_columns,
    "SVM-DIFF": diffusion_columns,
    "SVM-WWL": wwl_columns,
    "SVM-GCKN": walk_columns,
}


@dataclass
class Tuned:
    """The best setting by cross-validation.

    Attributes:
        setting: The setting.
        val: Its mean validation accuracy.
        by_fold: The predictions of the machines of the folds.
        predicted: The predictions of the machine that sees all labels.
    """

    setting: dict[str, Any]
    val: float
    by_fold: list[Tensor]
    predicted: Tensor


def tune(name: str, data: Data, folds: list[tuple[Tensor, Tensor]]) -> Tuned:
    """Choose kernel and cost by cross-validation.

    Args:
        name: One of ``KERNELS``.
        data: The graph.
        folds: Masks of training and validation nodes; together they are the labelled nodes.
    """
    labelled = torch.stack([train | val for train, val in folds]).any(dim=0).nonzero().view(-1)
    y = data.y[labelled].numpy()
    parts = [(train[labelled].numpy(), val[labelled].numpy()) for train, val in folds]
    best, kept = Tuned({}, -1.0, [], torch.empty(0)), np.empty(0)
    for setting, columns in KERNELS[name](data, labelled):
        block = columns[labelled.numpy()]
        for power in POWERS:
            cost = 10.0**power
            hits = [
                np.mean(_fit(block[train][:, train], y[train], cost).predict(block[val][:, train]) == y[val])
                for train, val in parts
                if len(set(y[train])) > 1 and val.any()
            ]
            if np.mean(hits) > best.val:
                best, kept = Tuned({**setting, "C": cost}, float(np.mean(hits)), [], torch.empty(0)), columns
    every = np.ones(len(y), dtype=bool)
    machines = [(part, _fit(kept[labelled.numpy()[part]][:, part], y[part], best.setting["C"]))
                for part in (*(train for train, _ in parts if len(set(y[train])) > 1), every)]  # fmt: skip
    *best.by_fold, best.predicted = (torch.from_numpy(m.predict(kept[:, part])) for part, m in machines)
    return best


def _fit(block: np.ndarray, y: np.ndarray, cost: float) -> SVC:
    return SVC(C=cost, kernel="precomputed", class_weight=None).fit(block, y)
