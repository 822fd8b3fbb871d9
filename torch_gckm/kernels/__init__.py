"""Kernel functions. They see features through inner products and never see a graph."""

from torch_gckm.kernels.discrete import Categorical, Custom, Precomputed
from torch_gckm.kernels.distance import RBF, Laplacian, Matern
from torch_gckm.kernels.features import Features, FeaturesLike, Rows
from torch_gckm.kernels.inner import Cosine, Linear, NormalizedPolynomial, Polynomial
from torch_gckm.kernels.kernel import Kernel, LeafKernel, Product, Scaled, Sum
from torch_gckm.kernels.resolve import KernelLike, as_kernel, kernel_from_config
from torch_gckm.kernels.storage import DenseFeatures, SparseFeatures, Views, as_rows

__all__ = [
    "RBF", "Laplacian", "Matern", "Linear", "Polynomial", "NormalizedPolynomial", "Cosine", "Categorical",
    "Precomputed", "Custom", "Kernel", "LeafKernel", "Sum", "Product", "Scaled", "Rows", "Features",
    "DenseFeatures", "SparseFeatures", "Views", "FeaturesLike", "KernelLike", "as_rows", "as_kernel",
    "kernel_from_config"
]  # fmt: skip
