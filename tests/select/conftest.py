from collections import Counter

import pytest

from torch_gckm.graph import topology


@pytest.fixture
def matrices_made(monkeypatch):
    """How often a propagation matrix was made, by kind and direction."""
    made, normalized, kinds = Counter(), topology.normalized_edges, []
    original = topology.PropagationMatrix

    def normalized_edges(kind, direction, *args):
        kinds.append((kind, direction))
        return normalized(kind, direction, *args)

    def propagation_matrix(*args):
        made[kinds.pop()] += 1
        return original(*args)

    monkeypatch.setattr(topology, "normalized_edges", normalized_edges)
    monkeypatch.setattr(topology, "PropagationMatrix", propagation_matrix)
    return made
