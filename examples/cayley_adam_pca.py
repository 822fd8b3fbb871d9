"""Leading eigenvectors by CayleyAdam: an optimiser whose matrices keep orthonormal columns.

Kernel PCA of the digits is a maximum of Tr(H' K H) over H'H = I. The steps climb from a random start towards
the sum of the leading eigenvalues, and H stays orthonormal all the way.
"""

import argparse

import torch

from torch_gckm import CayleyAdam
from torch_gckm.datasets import load
from torch_gckm.kernels import RBF
from torch_gckm.manifold import orthogonality_error, random_stiefel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--columns", type=int, default=5)
parser.add_argument("--quick", action="store_true", help="few steps")
parser.add_argument("--no-progress", action="store_true", help="print the result only")
args = parser.parse_args()
steps = 20 if args.quick else args.steps

x = load("digits").x
with torch.no_grad():
    kernel = RBF()(x)  # The bandwidth is the variance of the features.
    kernel = kernel - kernel.mean(dim=0)
    kernel = kernel - kernel.mean(dim=1, keepdim=True)
largest = torch.linalg.eigvalsh(kernel)[-args.columns :].sum()

h = torch.nn.Parameter(random_stiefel(len(x), args.columns, seed=0))
optimizer = CayleyAdam([h], lr=1.0, betas=(0.0, 0.99), stiefel=True)
for step in range(steps + 1):
    optimizer.zero_grad()
    value = (h * (kernel @ h)).sum()
    (-value).backward()
    if step == steps or (step % 20 == 0 and not args.no_progress):
        share, error = 100 * float(value.detach() / largest), float(orthogonality_error(h.detach()))
        print(f"step {step:>4}: {share:6.2f} % of what is there, orthogonality error {error:.1e}")
    optimizer.step()
