"""What scikit-learn asks of an estimator."""

import pytest
from sklearn.base import is_classifier, is_clusterer, is_regressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from torch_gckm import GCKMClassifier, GCKMClustering, GCKMEmbedding, GCKMRegressor

UNLABELLED = "one of its problems has the classes -1 and 1, and -1 means unlabelled"
ESTIMATORS = [GCKMClassifier(search=None), GCKMClustering(), GCKMEmbedding(), GCKMRegressor(search=None, members=2)]


def expected_failures(estimator):
    return {"check_classifiers_classes": UNLABELLED} if isinstance(estimator, GCKMClassifier) else {}


@pytest.mark.slow
# More channels than the checks' few rows have directions; one check may need a setting of the environment.
@pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_checks(estimator, check):
    check(estimator)


def test_kinds():
    assert [is_classifier(e) for e in ESTIMATORS] == [True, False, False, False]
    assert [is_clusterer(e) for e in ESTIMATORS] == [False, True, False, False]
    assert [is_regressor(e) for e in ESTIMATORS] == [False, False, False, True]
