"""What a search found."""

import math
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from torch_gckm.errors import InvalidInputError, NotFittedError
from torch_gckm.nn import GCKM
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.ensemble import GCKMEnsemble
from torch_gckm.select.trial import FIT_ERRORS, Evaluator, Trial, describe_error, quiet
from torch_gckm.select.value_ensemble import ValueEnsemble
from torch_gckm.select.values import ValueEvaluator
from torch_gckm.select.withheld import check_well_posed

MEMBERS = 8  # How many settings an ensemble combines.


class SearchResult:
    """The trials of a search, ranked."""

    def __init__(self, evaluator: Evaluator, ranking: Ranking, trials: list[Trial]) -> None:
        self.evaluator, self.ranking, self.trials = evaluator, ranking, trials
        self._failure: str | None = None

    def ranked(self) -> list[Trial]:
        """The trials that did not fail, best first."""
        return self.ranking.order(self.trials)

    @property
    def best(self) -> Trial:
        """The best trial."""
        ranked = self.ranked()
        if not ranked:
            raise NotFittedError(self._nothing())
        return ranked[0]

    def model(self, trial: Trial | None = None) -> GCKM:
        """The fitted model of a trial, by default the best; it may be fine-tuned."""
        with quiet():
            if trial is not None:
                return self.evaluator.solve(trial.setting, own_layers=True)
            for candidate in self.ranked():
                model = self._try(candidate, own_layers=True)
                if model is not None:
                    return model
        raise NotFittedError(self._nothing())

    def ensemble(
        self, size: int = MEMBERS, *, self_training: bool = True, class_prior: Tensor | None = None
    ) -> GCKMEnsemble:
        """The best settings, fitted again and combined.

        Args:
            size: The number of settings.
            self_training: Let the ensemble also learn from nodes that it is sure of, see
                :meth:`GCKMEnsemble.self_train`. Not done with real targets.
            class_prior: The shares of the classes among all nodes, if they are known, ``[num_classes]``; see
                :meth:`GCKMEnsemble.use_class_prior`.
        """
        if size < 1:
            raise InvalidInputError(f"an ensemble needs at least one model, got size={size}")
        with self.evaluator.partition.agreed():
            return self._ensemble(size, self_training, class_prior)

    def _ensemble(self, size: int, self_training: bool, class_prior: Tensor | None) -> GCKMEnsemble:
        candidates, models = self.ranked(), dict[int, GCKM]()
        with quiet():
            while members := choose_members(self.ranking.worth_combining(candidates), size):
                for trial in sorted(members, key=lambda trial: trial.number):  # Neighbours share layers.
                    if trial.number not in models:
                        model = self._try(trial)
                        if model is None:  # The next one takes its place.
                            candidates.remove(trial)
                        else:
                            models[trial.number] = model
                if all(trial.number in models for trial in members):
                    chosen = [models[number] for number in sorted(trial.number for trial in members)]
                    if isinstance(self.evaluator, ValueEvaluator):
                        return ValueEnsemble(chosen)
                    ensemble = GCKMEnsemble(chosen)
                    if class_prior is not None:
                        ensemble.use_class_prior(class_prior)
                    return ensemble.self_train_on(self.evaluator.labels.targets) if self_training else ensemble
        raise NotFittedError(self._nothing())

    def _try(self, trial: Trial, *, own_layers: bool = False) -> GCKM | None:
        """The model of a trial, or ``None`` if what went well with matrices of a lower rank does not now."""
        try:
            with self.evaluator.partition.agreed():
                model = self.evaluator.solve(trial.setting, own_layers=own_layers)
                check_well_posed(model.readout.fit)
        except FIT_ERRORS as error:
            self._failure = describe_error(error)
            return None
        return model

    def progress(self) -> dict[str, str]:
        """The best trial in a few words."""
        ranked = self.ranked()
        if not ranked:
            return {"failed": str(len(self.trials))}
        measures = ranked[0].measures
        shown = {"best": str(ranked[0].number)}
        for name in ("leave_one_out", "cosine", "val_acc"):
            if not math.isnan(measures.get(name, math.nan)):
                shown[name] = f"{100 * measures[name]:.1f}"
        return shown

    def table(self, count: int = 10) -> str:
        """The best trials, a line each."""
        columns = {"leave_one_out": "one out", "per_class_out": "per class", "cosine": "cosine"}
        if isinstance(self.evaluator, ValueEvaluator):  # The share of the variance that is explained.
            columns = {"leave_one_out": "one out"}
        lines = [f"{'trial':>6}{''.join(f'{c:>{len(c) + 2}}' for c in columns.values())}{'seconds':>9}  setting"]
        for trial in self.ranked()[:count]:
            m = trial.measures
            cells = "".join(f"{100 * m[name]:>{len(column) + 2}.1f}" for name, column in columns.items())
            lines.append(f"{trial.number:>6}{cells}{trial.seconds:>9.2f}  {trial.setting}")
        return "\n".join(lines)

    def _nothing(self) -> str:
        if not self.trials:
            return "the search tried no setting; give it a larger budget"
        failure = self._failure or self.trials[-1].error
        return f"none of {len(self.trials)} settings could be fitted; the last one failed with: {failure}"

    def __len__(self) -> int:
        return len(self.trials)

    def __repr__(self) -> str:
        failed = sum(not trial.is_valid for trial in self.trials)
        return f"SearchResult({len(self)} settings, {failed} failed, criterion={self.ranking.criterion!r})"


def choose_members(ranked: Sequence[Trial], size: int, per_embedding: int = 3) -> list[Trial]:
    """The best trials, but at most so many with the same embedding or features, so that they differ."""
    members: list[Trial] = []
    used: Counter[str] = Counter()
    for trial in ranked:
        setting = trial.setting
        embedding = repr((setting.normalize, setting.layers, setting.propagation))
        used[embedding] += 1
        if used[embedding] <= per_embedding:
            members.append(trial)
    return members[:size]
