"""A search that learns from earlier settings where to look, by a sampler of Optuna (extra ``tune``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from torch_geometric.data import Data

from torch_gckm.gram import GramLike
from torch_gckm.partition import partition_of
from torch_gckm.select.criteria import Criterion
from torch_gckm.select.identity import check_identity, search_identity
from torch_gckm.select.result import SearchResult
from torch_gckm.select.search import evaluator_for, ranking_for
from torch_gckm.select.space import Space
from torch_gckm.select.studies import (
    TRIAL,
    StorageLike,
    from_attributes,
    open_storage,
    open_study,
    require_optuna,
    to_attributes,
)

if TYPE_CHECKING:
    import optuna

T = TypeVar("T")


class StudyChooser:
    """Choices made by an Optuna trial."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def choice(self, name: str, options: Sequence[T]) -> T:
        by_name = {str(option): option for option in options}  # A study keeps plain values only.
        return by_name[self.trial.suggest_categorical(name, list(by_name))]

    def log_uniform(self, name: str, low: float, high: float) -> float:
        return self.trial.suggest_float(name, low, high, log=True)


def study_search(
    data: Data,
    space: Space | None = None,
    budget: float | None = 60.0,
    criterion: Criterion = "auto",
    seed: int = 0,
    *,
    max_settings: int | None = None,
    num_classes: int | None = None,
    split: int | None = None,
    gram: GramLike = "auto",
    storage: StorageLike | None = None,
    name: str = "gckm",
    progress: bool = True,
) -> SearchResult:
    """Search with Optuna's sampler instead of at random; see :func:`~torch_gckm.select.search`.

    Processes on several machines that name the same storage and study search together. Each returns the settings of all
    of them that are finished by then, needs a seed of its own, and counts its own settings for ``max_settings``.
    The study ``name`` is kept in a ``storage``, see :func:`~torch_gckm.select.search`; by default, in memory.
    """
    require_optuna()
    import optuna

    partition_of(data).refuse("searches by a sampler of Optuna are", "use torch_gckm.select.search")
    space = (space or Space()).on_graph(data)
    evaluator = evaluator_for(data, num_classes, gram, split, own=space.own)
    ranking = ranking_for(evaluator, criterion)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=False)
    study = open_study(None if storage is None else open_storage(storage), name, sampler)
    identity = json.loads(json.dumps(search_identity(evaluator, space, gram)))
    if study.trials:
        check_identity(study.user_attrs.get("identity", {}), identity, f"the study '{name}'")
    study.set_user_attr("identity", identity)

    def objective(attempt: optuna.Trial) -> float:
        trial = evaluator(attempt.number, space.draw(StudyChooser(attempt)))
        for key, content in to_attributes(trial).items():
            attempt.set_user_attr(key, content)
        if not trial.is_valid:
            raise optuna.TrialPruned(trial.error)
        return ranking.value(trial)

    study.optimize(objective, n_trials=max_settings, timeout=budget, show_progress_bar=progress)
    # Another process may be at trials that have none yet.
    trials = [from_attributes(frozen.user_attrs) for frozen in study.trials if TRIAL in frozen.user_attrs]
    return SearchResult(evaluator, ranking, trials)
