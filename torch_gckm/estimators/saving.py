"""Classifiers as plain values and tensors, so that loading executes no code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.nn.saving import FORMAT as MODEL_FORMAT
from torch_gckm.select.ensemble import ensemble_from
from torch_gckm.select.inductive_ensemble import FORMAT as ENSEMBLE_FORMAT
from torch_gckm.select.inductive_ensemble import members_of

if TYPE_CHECKING:
    from torch_gckm.estimators.classifier import GCKMClassifier

C = TypeVar("C", bound="GCKMClassifier")
FORMAT = "classifier 1"


def save_classifier(classifier: GCKMClassifier, path: PathLike, *, inductive: bool) -> None:
    """Write a fitted classifier to one file."""
    model, classes = classifier.model_, classifier.classes_
    if inductive and hasattr(model, "inductive"):
        model = model.inductive()
    content = {
        "format": FORMAT,
        "ensemble": model.content(),
        "classes": classes if isinstance(classes, Tensor) else classes.tolist(),
        "from_rows": classifier.from_rows_,
        "node_names": None if inductive else classifier.node_names_,
        "directed": classifier.directed_,
        "num_features": classifier.n_features_in_,
    }
    save_tensors(content, path)


def load_classifier(kind: type[C], path: PathLike) -> C:
    """Read a classifier; a file of an ensemble or of a single model is one whose classes are numbers."""
    content = load_tensors(path)
    if content.get("format") in (ENSEMBLE_FORMAT, MODEL_FORMAT):
        content = {"ensemble": content, "format": FORMAT}
    if content.get("format") != FORMAT:
        raise InvalidInputError(f"'{path}' is not a file of a classifier of this version of torch_gckm")
    classifier = kind()
    inner, members = members_of(content["ensemble"], path)
    model = ensemble_from(inner, members)
    classes: Any = content.get("classes", torch.arange(model.out_channels))
    classifier.model_, classifier.result_ = model, None
    classifier.classes_ = classes if isinstance(classes, Tensor) else np.array(classes)
    classifier.from_rows_, classifier.node_names_ = content.get("from_rows", False), content.get("node_names")
    classifier.directed_ = content.get("directed", False)
    classifier.n_features_in_ = content.get("num_features", members[0].in_channels)
    return classifier
