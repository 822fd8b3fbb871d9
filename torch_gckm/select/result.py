"""What a search found."""

import math
import time
import warnings
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from torch_gckm.errors import GCKMWarning, InvalidInputError, NotFittedError
from torch_gckm.gram import as_gram
from torch_gckm.nn import GCKM
from torch_gckm.progress import Bar
from torch_gckm.select.criteria import Ranking
from torch_gckm.select.ensemble import GCKMEnsemble
from torch_gckm.select.time_limit import MemberTime, Rank, slowdown_of
from torch_gckm.select.trial import FIT_ERRORS, Evaluator, Trial, describe_error, quiet
from torch_gckm.select.unseen import Unseen, unseen
from torch_gckm.select.value_ensemble import ValueEnsemble
from torch_gckm.select.values import ValueEvaluator
from torch_gckm.select.withheld import check_well_posed, labels_in

MEMBERS = 8  # How many settings an ensemble combines.
PREPARING = "preparing the graph"
_ROUNDS = 2  # Of self-training.


class SearchResult:
    """The trials of a search, ranked.

    Attributes:
        evaluator: Fits settings as the models of the result.
        rough: Fits them as the trials were, with kernel matrices of a lower rank.
        ranking: What orders the trials.
        trials: What was tried, by number.
        interrupted: Whether the search was ended by Ctrl-C.
        seconds: How long the parts of the search took, and of the last :meth:`ensemble`.
    """

    def __init__(
        self, evaluator: Evaluator, ranking: Ranking, trials: list[Trial], rough: Evaluator | None = None
    ) -> None:
        self.evaluator, self.ranking, self.trials = evaluator, ranking, trials
        self.rough = rough or evaluator
        self.interrupted = False
        self.seconds: dict[str, float] = {}
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
        self,
        size: int = MEMBERS,
        *,
        self_training: bool = True,
        class_prior: Tensor | None = None,
        budget: float | None = None,
        progress: bool = False,
    ) -> GCKMEnsemble:
        """The best settings, fitted again and combined.

        Args:
            size: The number of settings.
            self_training: Let the ensemble also learn from nodes that it is sure of, see
                :meth:`GCKMEnsemble.self_train`. Not done with real targets.
            class_prior: The shares of the classes among all nodes, if they are known, ``[num_classes]``; see
                :meth:`GCKMEnsemble.use_class_prior`.
            budget: The time for it in seconds. If it is too short for all models in full rank, some have the rank
                of the search, or there are fewer, at least one, or they do not self-train; a warning says so. ``None``
                for no limit.
            progress: Show progress bars.
        """
        if size < 1:
            raise InvalidInputError(f"an ensemble needs at least one model, got size={size}")
        self_training = self_training and self._has_classes
        over = self.evaluator.partition
        shown, end = progress and over.rank == 0, None if budget is None else time.perf_counter() + budget
        with over.agreed(), quiet():
            start = time.perf_counter()
            timing = MemberTime(end, self.ranked()[:size], self._slowdown(), self_training, over.processes)
            with Bar("models", min(size, len(self.ranked())), unit=" fitted", shown=shown, until=end) as bar:
                members = self._members(size, timing, bar)
            found = self.unseen(size)
            gain = 1.0 if found is None else found.gain
            ensemble = GCKMEnsemble(members, gain=gain) if self._has_classes else ValueEnsemble(members)
            if class_prior is not None and self._has_classes:
                ensemble.use_class_prior(class_prior)
            fitted = time.perf_counter()
            self.seconds["fit of the ensemble"] = fitted - start
            if timing.self_trains():
                steps = _ROUNDS * len(members)
                with Bar("self-training", steps, unit=" solved", shown=shown) as bar:
                    ensemble.self_train_on(self.evaluator.labels.targets, rounds=_ROUNDS, step=bar.update)
                self.seconds["self-training"] = time.perf_counter() - fitted
        self.rough.fits.forget()
        if timing.shortage is not None and over.rank == 0:
            warnings.warn(timing.shortage, GCKMWarning, stacklevel=2)
        return ensemble

    def unseen(self, size: int = MEMBERS) -> Unseen | None:
        """How labels are predicted that were withheld from the fit and from the choice of so many settings.

        ``None`` if no class has two labels, or if there are so many that the choice hardly matters.
        """
        evaluator, ranking = self.evaluator, self.ranking
        if isinstance(evaluator, ValueEvaluator):
            return None
        withheld = evaluator.classes[labels_in(evaluator.groups)]
        return unseen(
            self.trials, withheld, lambda trials: choose_members(ranking.worth_combining(ranking.order(trials)), size)
        )

    def _members(self, size: int, timing: MemberTime, bar: Bar) -> list[GCKM]:
        """The models of the best settings, by their number; fewer if the time is up."""
        candidates, models = self.ranked(), dict[int, GCKM]()
        while members := choose_members(self.ranking.worth_combining(candidates), size):
            waiting = [trial for trial in sharing_layers(members) if trial.number not in models]
            for place, trial in enumerate(waiting):
                rank, start = timing.rank(len(waiting) - place), time.perf_counter()
                if rank is None:
                    members = [trial for trial in members if trial.number in models]
                    break
                model = self._try(trial, rank)
                if model is None:  # The next one takes its place.
                    candidates.remove(trial)
                else:
                    models[trial.number] = model
                    timing.note(rank, time.perf_counter() - start)
                    bar.update()
            if all(trial.number in models for trial in members):
                return [models[number] for number in sorted(trial.number for trial in members)]
        raise NotFittedError(self._nothing())

    def _try(self, trial: Trial, rank: Rank = "full", *, own_layers: bool = False) -> GCKM | None:
        """The model of a trial, or ``None`` if what went well with matrices of a lower rank does not now."""
        evaluator = self.evaluator if rank == "full" else self.rough
        try:
            with evaluator.partition.agreed():
                model = evaluator.solve(trial.setting, own_layers=own_layers)
                check_well_posed(model.readout.fit)
        except FIT_ERRORS as error:
            self._failure = describe_error(error)
            return None
        return model

    @property
    def _has_classes(self) -> bool:
        return not isinstance(self.evaluator, ValueEvaluator)

    def _slowdown(self) -> float:
        nodes = self.evaluator.fits.graphs.plain.num_nodes
        return slowdown_of(as_gram(self.evaluator.fits.gram), as_gram(self.rough.fits.gram), nodes)

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


def sharing_layers(members: Sequence[Trial]) -> list[Trial]:
    """Ranked trials in an order in which those with the same first layer, who share its fit, follow each other."""
    first = [next(iter(trial.setting.layer_keys()), "") for trial in members]
    return [trial for _, trial in sorted(enumerate(members), key=lambda pair: (first.index(first[pair[0]]), pair[0]))]
