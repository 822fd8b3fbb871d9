"""The settings of the paper's authors: arguments of ``GCKM`` besides the numbers of features and classes.

With ``power=0`` layers return H itself, as in the paper.
"""

from typing import Any

from torch_gckm.kernels import RBF, Polynomial

# Few labels, the paper's Table 2.
FEW_LABELS: dict[str, dict[str, Any]] = {
    "cora": {
        "hidden_channels": (64, 16),
        "power": 0.0,
        "kernel": [RBF(260.5), RBF(0.5167), RBF(0.0499)],
        "lambda2": 0.07068,
        "loss_weights": [15.85, 1.0, 1.14],
    },
    "citeseer": {
        "hidden_channels": (64, 16),
        "power": 0.0,
        "kernel": [Polynomial(2, 0.21654), RBF(0.07295), RBF(0.06662)],
        "lambda2": 0.1,
        "loss_weights": [1.0, 1.0, 1.14],
    },
    "pubmed": {
        "hidden_channels": (16, 32),
        "power": 0.0,
        "kernel": [RBF(145.08), RBF(0.16374), RBF(0.0546)],
        "lambda2": 0.06871,
        "loss_weights": [2.437, 1.0, 1.14],
    },
    "chameleon": {
        "hidden_channels": (64, 16),
        "power": 0.0,
        "kernel": [Polynomial(2, 186.5), RBF(0.2512), RBF(0.6176)],
        "lambda2": 0.0526,
        "loss_weights": [1.139, 1.0, 1.14],
        "aggregation": "sum",
    },
    "squirrel": {
        "hidden_channels": (64, 64),
        "power": 0.0,
        "kernel": [RBF(27.56), RBF(0.1651), RBF(0.08305)],
        "lambda2": 0.0501,
        "loss_weights": [2.163, 1.0, 1.14],
        "aggregation": "sum",
    },
}
# Few validation labels, the paper's Table 3.
FEW_VALIDATION: dict[str, dict[str, Any]] = {
    "cora": {
        "hidden_channels": (64, 16),
        "power": 0.0,
        "kernel": [Polynomial(2, 181.58), RBF(0.0616), RBF(0.00605)],
        "lambda2": 0.1,
    },
    "citeseer": {
        "hidden_channels": (64, 16),
        "power": 0.0,
        "kernel": [Polynomial(2, 610.15), RBF(0.0675), RBF(0.00709)],
        "lambda2": 0.1,
    },
    "pubmed": {
        "hidden_channels": (16, 16),
        "power": 0.0,
        "kernel": [RBF(40.52), RBF(4.437), RBF(0.0895)],
        "eta": [1.0, 1.0, 0.0732],
        "lambda1": 5.936,
        "lambda2": 0.1184,
        "loss_weights": [1.991, 0.3695, 1.0],
    },
}
