"""From names, functions and saved configurations to kernels."""

from typing import Any, Union

from torch_gckm.errors import InvalidInputError
from torch_gckm.kernels.discrete import Categorical, Custom, KernelFunction, Precomputed
from torch_gckm.kernels.distance import RBF, Laplacian, Matern
from torch_gckm.kernels.inner import Cosine, Linear, NormalizedPolynomial, Polynomial
from torch_gckm.kernels.kernel import Kernel, LeafKernel, Pair, Product, Scaled, Sum

KernelLike = Union[str, Kernel, KernelFunction]

_BY_NAME: dict[str, type[LeafKernel]] = {
    "rbf": RBF, "laplacian": Laplacian, "matern": Matern, "linear": Linear, "polynomial": Polynomial,
    "normalized_polynomial": NormalizedPolynomial, "cosine": Cosine, "categorical": Categorical,
}  # fmt: skip
_BY_KIND: dict[str, type[LeafKernel]] = {kind.__name__: kind for kind in _BY_NAME.values()}
_BY_KIND["Precomputed"] = Precomputed
_PAIRS: dict[str, type[Pair]] = {"Sum": Sum, "Product": Product}


def as_kernel(kernel: KernelLike) -> Kernel:
    """A kernel from its name (with default hyperparameters), from a function, or itself."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel.lower() not in _BY_NAME:
            raise InvalidInputError(f"unknown kernel '{kernel}'; choose from {', '.join(sorted(_BY_NAME))}")
        return _BY_NAME[kernel.lower()]()
    if callable(kernel):
        return Custom(kernel)
    raise InvalidInputError(f"a kernel is a name, a Kernel or a function of two matrices, got {kernel!r}")


def kernel_from_config(config: dict[str, Any]) -> Kernel:
    """Rebuild a kernel from :meth:`Kernel.config`."""
    kind = config["kind"]
    if kind in _PAIRS:
        return _PAIRS[kind](kernel_from_config(config["left"]), kernel_from_config(config["right"]))
    if kind == "Scaled":
        return Scaled(kernel_from_config(config["kernel"]), config["scale"])
    if kind == "Custom":
        raise InvalidInputError(
            f"the kernel '{config['arguments']['function']}' is a Python function and cannot be written to a file that "
            "loads without executing code; save model.state_dict() instead"
        )
    if kind not in _BY_KIND:
        raise InvalidInputError(f"the kernel '{kind}' is not one of {sorted(_BY_KIND)}; no other can be saved")
    kernel = _BY_KIND[kind](**config["arguments"])
    kernel.view = config["view"]
    return kernel
