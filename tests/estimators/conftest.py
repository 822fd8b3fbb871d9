import numpy as np
import pytest
from sklearn.datasets import make_blobs


@pytest.fixture
def blobs():
    """Features and classes of rows; classes touch but hardly mix."""
    X, y = make_blobs(150, n_features=4, centers=3, cluster_std=1.5, random_state=1)
    return X, y


@pytest.fixture
def few(blobs):
    """The classes of the first rows, -1 for the others."""
    return np.where(np.arange(150) < 20, blobs[1], -1)
