"""The same search as an Optuna study (extra ``tune``): it learns where to look, and several machines can share it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from torch_geometric.data import Data

from torch_gckm.gram import GramLike
from torch_gckm.nn import ModelSettings
from torch_gckm.select.criteria import Criterion
from torch_gckm.select.result import SearchResult
from torch_gckm.select.search import check_identity, evaluator_for, ranking_for, search_identity
from torch_gckm.select.space import Space
from torch_gckm.select.trial import Trial

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
    storage: str | optuna.storages.BaseStorage | None = None,
    name: str = "gckm",
    progress: bool = True,
) -> SearchResult:
    """Search with Optuna's sampler instead of at random; see :func:`~torch_gckm.select.search`.

    Processes on several machines that name the same storage and study search together. Each returns the settings of all
    of them that are finished by then, needs a seed of its own, and counts its own settings for ``max_settings``.
    The study ``name`` lives in a ``storage``, a database URL or an Optuna storage; ``None`` keeps it in memory.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("a study needs optuna; install it with: pip install 'torch_gckm[tune]'") from error

    space = (space or Space()).on_graph(data)
    evaluator = evaluator_for(data, num_classes, gram, split)
    ranking = ranking_for(evaluator, criterion)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=False)
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True, sampler=sampler
    )
    identity = json.loads(json.dumps(search_identity(evaluator, space, gram)))
    if study.trials:
        check_identity(study.user_attrs.get("identity", {}), identity, f"the study '{name}'")
    study.set_user_attr("identity", identity)

    def objective(attempt: optuna.Trial) -> float:
        trial = evaluator(attempt.number, space.draw(StudyChooser(attempt)))
        attempt.set_user_attr("setting", json.dumps(trial.setting.to_dict()))
        attempt.set_user_attr("measures", trial.measures)
        attempt.set_user_attr("error", trial.error)
        if not trial.is_valid:
            raise optuna.TrialPruned(trial.error)
        return ranking.value(trial)

    study.optimize(objective, n_trials=max_settings, timeout=budget, show_progress_bar=progress)
    trials = [
        Trial(
            frozen.number,
            ModelSettings.from_dict(json.loads(frozen.user_attrs["setting"])),
            frozen.user_attrs["measures"],
            frozen.duration.total_seconds() if frozen.duration else 0.0,
            frozen.user_attrs["error"],
        )
        for frozen in study.trials
        if "error" in frozen.user_attrs  # Written last: another process may be at it.
    ]
    return SearchResult(evaluator, ranking, trials)
