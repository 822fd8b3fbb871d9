"""Choose settings of baselines: by cross-validation over few labels, or by one validation set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from baselines import training
from baselines.networks import NETWORKS
from baselines.propagation import ALPHAS, correct_and_smooth, propagate_labels
from baselines.svm import KERNELS, tune
from baselines.training import NetworkTrainer, Recipe, grid_for

Folds = list[tuple[Tensor, Tensor]]
SMOOTHED = "MLP"  # The network that C&S smooths.


@dataclass
class Outcome:
    """What tuning a method came to.

    Attributes:
        setting: The chosen setting.
        val: Its mean validation accuracy.
        by_fold: Predictions of the models of the folds, the paper's way to report.
        retrained: Predictions of models trained on all labels with that setting, one per seed.
    """

    setting: dict[str, Any]
    val: float
    by_fold: list[Tensor]
    retrained: list[Tensor]


def cross_validate(
    name: str, data: Data, folds: Folds, seeds: Sequence[int], grid: Sequence[Recipe] | None = None
) -> Outcome:
    """Tune any baseline on folds of its labels.

    Args:
        name: A network, a kernel of ``svm.py``, ``"LabelPropagation"`` or ``"C&S"``.
        data: The graph.
        folds: Masks of training and validation nodes; together they are the labelled nodes.
        seeds: The seeds of the models that are trained on all labels.
        grid: The settings of networks; by default those that suit the size of the graph.
    """
    grid = grid_for(data) if grid is None else grid
    if name in NETWORKS:
        return _network(name, data, folds, seeds, grid)
    if name in KERNELS:
        tuned = tune(name, data, folds)
        return Outcome(tuned.setting, tuned.val, tuned.by_fold, [tuned.predicted])
    if name == "LabelPropagation":
        return _best_alpha(
            data, folds, [data.x] * (len(folds) + 1), lambda train, _, a: propagate_labels(data, train, a)
        )
    if name == "C&S":
        trainer, recipe = NetworkTrainer(data, SMOOTHED), grid[0]
        runs = [trainer.train(recipe, 0, train, val) for train, val in folds]
        runs.append(trainer.train(recipe, 0, _labelled(folds), epochs=training.MAX_EPOCHS))
        soft = [run.probabilities for run in runs]
        return _best_alpha(data, folds, soft, lambda train, p, a: correct_and_smooth(data, train, p, a))
    raise ValueError(f"unknown baseline '{name}'; choose from {', '.join(BASELINES)}")


BASELINES = (*KERNELS, *NETWORKS, "LabelPropagation", "C&S")


def validate(name: str, data: Data, seeds: Sequence[int], grid: Sequence[Recipe] | None = None) -> Outcome:
    """Tune a network by its validation nodes; the first seed chooses, all are reported."""
    grid = grid_for(data) if grid is None else grid
    trainer = NetworkTrainer(data, name)
    runs = {recipe: trainer.train(recipe, seeds[0], data.train_mask, data.val_mask) for recipe in grid}
    recipe = max(runs, key=lambda key: runs[key].val)
    others = [trainer.train(recipe, seed, data.train_mask, data.val_mask) for seed in seeds[1:]]
    predictions = [run.predicted for run in (runs[recipe], *others)]
    return Outcome(recipe.config(), runs[recipe].val, predictions, [])


def _network(name: str, data: Data, folds: Folds, seeds: Sequence[int], grid: Sequence[Recipe]) -> Outcome:
    trainer = NetworkTrainer(data, name)
    best, chosen, val = [], grid[0], -1.0
    for recipe in grid:
        runs = [trainer.train(recipe, number, *fold) for number, fold in enumerate(folds)]
        mean = statistics.fmean(run.val for run in runs)
        if mean > val:
            best, chosen, val = runs, recipe, mean
    # For all epochs: where to stop by a fold's few validation nodes is chance, and cost GPR-GNN 14 points on CiteSeer.
    retrained = [trainer.train(chosen, seed, _labelled(folds), epochs=training.MAX_EPOCHS) for seed in seeds]
    return Outcome(chosen.config(), val, [run.predicted for run in best], [run.predicted for run in retrained])


def _best_alpha(data: Data, folds: Folds, inputs: list[Tensor], predict: Callable[..., Tensor]) -> Outcome:
    """The inputs are one per fold and one for all labels."""
    best = Outcome({}, -1.0, [], [])
    for alpha in ALPHAS:
        by_fold = [predict(train, given, alpha) for (train, _), given in zip(folds, inputs[:-1], strict=True)]
        pairs = zip(by_fold, folds, strict=True)
        val = statistics.fmean(float((found == data.y)[held].double().mean()) for found, (_, held) in pairs)
        if val > best.val:
            best = Outcome({"alpha": alpha}, val, by_fold, [predict(_labelled(folds), inputs[-1], alpha)])
    return best


def _labelled(folds: Folds) -> Tensor:
    return torch.stack([train | val for train, val in folds]).any(dim=0)
