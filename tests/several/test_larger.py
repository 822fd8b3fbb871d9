"""A graph of a size for which single precision and blocks matter."""

import os

import pytest
import torch

from tests.several import jobs
from tests.several.run import run


@pytest.mark.skipif("GCKM_SLOW" not in os.environ, reason="larger graphs take a while: make test-several")
def test_single_precision_at_50_000_nodes():
    alone, parts = jobs.single_precision(False), run(2, jobs.single_precision, True)
    assert all(map(torch.equal, parts[0]["landmarks"], alone["landmarks"]))
    scores = torch.cat([part["scores"] for part in parts])
    assert float((scores - alone["scores"]).abs().mean()) < 1e-4
    assert float((scores.argmax(dim=1) == alone["scores"].argmax(dim=1)).double().mean()) > 0.9999
    sent = {name: count for name, count in parts[0]["sent"].items() if name != "halo"}
    small = run(2, jobs.single_precision, True, 5_000)[0]["sent"]
    # Without the halo it does not grow with the graph, but for levels of the tree that landmarks are drawn from.
    assert sum(sent.values()) < 1.3 * sum(count for name, count in small.items() if name != "halo")
