import subprocess
import sys

import numpy as np
import scipy.sparse

from torch_gckm.neighbours import nearest_rows


def test_brute_force():
    x = np.random.default_rng(0).normal(size=(40, 5))
    distance = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (nearest_rows(x, 3).numpy() == distance.argsort(axis=1)[:, :3]).all()
    queries = x[:4] + 0.01
    assert nearest_rows(x, 1, queries).flatten().tolist() == [0, 1, 2, 3]
    assert (nearest_rows(scipy.sparse.csr_matrix(x), 3).numpy() == nearest_rows(x, 3).numpy()).all()


def test_ties_do_not_depend_on_the_number_of_cores():
    """Whole numbers have many ties."""
    code = """
import numpy as np
from torch_gckm.neighbours import nearest_rows
print(hash(nearest_rows(np.random.default_rng(0).integers(3, size=(1500, 20)).astype(float), 10).numpy().tobytes()))
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={"OMP_NUM_THREADS": str(cores), "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE, text=True,
        )
        for cores in (1, 2)
    ]  # fmt: skip
    found = {process.communicate()[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(found) == 1
