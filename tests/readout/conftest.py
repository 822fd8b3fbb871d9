import torch

from tests.conftest import make_graph
from torch_gckm.kernels import RBF
from torch_gckm.nn import SemiSupRKMReadout
from torch_gckm.readout import ReadoutProblem

ETA, LAMBDA1, LAMBDA2 = 0.9, 1.1, 0.13


def solved(n=40, seed=0, **arguments):
    """A readout that was solved, its scores, features and graph, in double precision."""
    data = make_graph(n, seed=seed)
    h = data.x.double()
    arguments = {"kernel": RBF(4.0), "eta": ETA, "lambda1": LAMBDA1, "lambda2": LAMBDA2, **arguments}
    readout = SemiSupRKMReadout(8, 3, **arguments).double()
    scores = readout(h, data.y, data.train_mask)
    return readout, scores, h, data


def paper(h, data, weight=None):
    """The matrices of the paper."""
    n = h.size(0)
    k = RBF(4.0)(h)
    label = data.train_mask.double() if weight is None else weight
    r = torch.diag(1 / (LAMBDA1 * k.sum(dim=1)) - label / LAMBDA2)
    c = 2.0 * torch.nn.functional.one_hot(data.y, 3).double() - 1
    ones = torch.ones(n, 1, dtype=torch.float64)
    s = torch.eye(n, dtype=torch.float64) - ones @ ones.t() @ r / (ones.t() @ r @ ones)
    return k, r, torch.diag(label), c, s, ones


def labels(n=80, p=3, **numbers):
    """A problem with nine labels."""
    y = torch.arange(n) % p
    weight = (torch.arange(n) < 9).double()
    numbers = {"eta": ETA, "lambda1": LAMBDA1, "lambda2": LAMBDA2, **numbers}
    return ReadoutProblem(weight, 2.0 * torch.nn.functional.one_hot(y, p).double() - 1, **numbers)
