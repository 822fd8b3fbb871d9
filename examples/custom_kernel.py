"""Kernels of your own: a function, a class with a bandwidth, sums and products, several views of the nodes."""

import argparse

import torch
from torch import Tensor

from torch_gckm import GCKM, Trainer
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.kernels import RBF, Custom, Kernel, Linear
from torch_gckm.kernels.distance import DistanceKernel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--draws", type=int, default=5, help="random choices of 4 labels per class")
parser.add_argument("--quick", action="store_true", help="one draw")
parser.add_argument("--no-progress", action="store_true", help="accepted by all examples; there is no progress bar")
args = parser.parse_args()


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """How much ink two images share; any function of two matrices that makes a positive semi-definite matrix."""
    return (a.sqrt() @ b.sqrt().t()) / 64


class Cauchy(DistanceKernel):
    """1 / (1 + |x - y|^2 / sigma2): it falls off more slowly than an RBF."""

    bandwidth = "sigma2"

    def __init__(self, sigma2: float | str = "auto", learnable: bool = False, scale: float = 1.0) -> None:
        super().__init__(sigma2, learnable, scale)  # type: ignore[arg-type]

    def automatic_bandwidth(self, variance: Tensor) -> Tensor:
        return variance

    def profile(self, squared: Tensor) -> Tensor:
        return 1.0 / (1.0 + squared / self._positive("sigma2").to(squared))


first_layers: dict[str, Kernel] = {
    "RBF": RBF(),
    "Cauchy, a class": Cauchy(),
    "overlap, a function": Custom(overlap),
    "0.9 RBF + 0.1 linear": 0.9 * RBF() + 0.1 * Linear(),
}
readouts = {"embedding": RBF(), "embedding and pixels": RBF() * RBF(scale=5.0).on("x")}

print(f"{'kernel of the first layer':<28}" + "".join(f"{name:>24}" for name in readouts))
for name, kernel in first_layers.items():
    line = f"{name:<28}"
    for readout in readouts.values():
        right = []
        for seed in range(1 if args.quick else args.draws):
            data = load("digits", transform=PerClassSplit(4, seed=seed))
            model = GCKM(data.num_features, (32, 10), 10, kernel=[kernel, RBF(), readout])
            Trainer(model, steps=0, progress=False).fit(data)
            right.append((model.predict() == data.y)[data.test_mask].double().mean())
        line += f"{100 * torch.stack(right).mean():>22.1f} %"
    print(line)
