"""What the tests of training share."""

import dataclasses

import torch

from torch_gckm import GCKM, Trainer


def model_for(data, **arguments):
    return GCKM(data.num_features, (6, 4), 3, **arguments).to(data.x.dtype)


def state_equal(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(x, second[name]) for name, x in first.items())


class KeepStep(Trainer):
    """Keeps the state of one step, whatever its scores are; by default the last."""

    def __init__(self, model, steps, kept=None, **options):
        super().__init__(model, steps, progress=False, **options)
        self.kept = steps if kept is None else kept

    def _measure(self, step, *args):
        return dataclasses.replace(super()._measure(step, *args), monitored=-abs(step - self.kept))
