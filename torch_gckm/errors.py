"""Typed errors and warnings.

Every error names the node or parameter at fault and says what to change. All of them derive from :class:`GCKMError`,
and also from the built-in exception that a caller would expect, so ``except ValueError`` keeps working.
"""

from typing import Any


class GCKMError(Exception):
    """Base class of every error raised by torch_gckm."""


class InvalidInputError(GCKMError, ValueError):
    """Features, edges or arguments that no model can use."""


def heterogeneous_graph(data: Any) -> InvalidInputError:
    """What to raise for a ``HeteroData``: there is more than one way to make one kind of nodes of it."""
    types = [kind for kind in data.node_types if "y" in data[kind]] or [*data.node_types, "paper"]
    kind = types[0]
    there = next((edge for edge in data.edge_types if edge[0] == kind), (kind, "to", "author"))
    back = next((edge for edge in data.edge_types if (edge[0], edge[2]) == (there[2], kind)), (there[2], "to", kind))
    return InvalidInputError(
        "heterogeneous graphs are not supported. If the features of all types have the same columns, convert with "
        "data.to_homogeneous(dummy_values=True). Else join the nodes with labels by a path through other types: "
        f"data = torch_geometric.transforms.AddMetaPaths([[{there}, {back}]])(data) and then "
        f"Data(edge_index=data['{kind}', 'metapath_0', '{kind}'].edge_index, **data['{kind}'].to_dict())"
    )


class InvalidLabelError(GCKMError, ValueError):
    """Labels or masks that are out of range, empty or of the wrong length."""


class MissingDataError(GCKMError, FileNotFoundError):
    """A dataset, or a split of one, is not on this machine and cannot be downloaded."""


class ViewError(GCKMError, KeyError):
    """A kernel names a view that the given features do not have."""

    def __str__(self) -> str:  # KeyError would print the repr of the sentence.
        return str(self.args[0])


class ZeroRowError(GCKMError, ValueError):
    """A row of zeros where a direction is needed (cosine kernel)."""


class NotFittedError(GCKMError, RuntimeError):
    """A result is asked for before anything was fitted."""


class GraphMismatchError(GCKMError, ValueError):
    """A fitted layer is called with a graph other than the one it was fitted on."""


class KernelNotPSDError(GCKMError, ValueError):
    """Kernel PCA needs a positive semi-definite kernel."""


class DegreeError(GCKMError, ValueError):
    """A node whose kernel degree is zero or negative; its weight 1/degree has no meaning."""


class SingularReadoutError(GCKMError, RuntimeError):
    """The readout's linear system has no unique solution."""


class LowRankError(GCKMError, ValueError):
    """The centred kernel matrix has fewer directions than were asked for."""


class EigenResidualError(GCKMError, RuntimeError):
    """An eigensolver returned vectors that do not solve the eigenproblem."""


class WorkerError(GCKMError, RuntimeError):
    """A process of a search was killed."""


class ProcessLostError(GCKMError, RuntimeError):
    """One of several processes that fit a graph together was killed, or cannot be reached."""


class OtherProcessError(GCKMError, RuntimeError):
    """Another one of several processes that fit a graph together has failed."""


class OutdatedAnswerError(GCKMError, RuntimeError):
    """An answer to a question that has changed since it was shown."""


class IllPosedError(GCKMError, ValueError):
    """A readout in which the leverage of a label on its own score is not between 0 and 1."""


class OutOfMemoryError(GCKMError, MemoryError):
    """An allocation that would not fit is refused before it is tried."""


class GCKMWarning(UserWarning):
    """Base class of every warning issued by torch_gckm."""


class LowRankWarning(GCKMWarning):
    """Fewer embedding dimensions than asked for: the kernel matrix has no more."""


class UnlabelledClassWarning(GCKMWarning):
    """A class without a single labelled node can never be predicted."""


class ZeroRowWarning(GCKMWarning):
    """Rows of zeros cannot be scaled to unit length and stay zero."""


class ManifoldWarning(GCKMWarning):
    """The embedding of a layer is no longer orthonormal."""


class OtherFeaturesWarning(GCKMWarning):
    """A fitted layer is called with other features than those that it was fitted to."""


class DetachedInputWarning(GCKMWarning):
    """Gradients were expected to flow through a layer that returns its own parameters."""
