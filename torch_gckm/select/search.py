"""Search for settings without validation labels."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike, load_tensors, save_tensors
from torch_gckm.gram import Auto, GramLike, LowRank, as_gram
from torch_gckm.graph import AS_GIVEN, warn_of_heavy_tail, weights_of
from torch_gckm.partition import in_agreement, partition_of
from torch_gckm.readout import check_values, count_classes, labels_of
from torch_gckm.select.criteria import Criterion, Ranking
from torch_gckm.select.identity import check_identity, search_identity
from torch_gckm.select.portfolio import portfolio
from torch_gckm.select.result import SearchResult
from torch_gckm.select.shared_search import SharedSearch
from torch_gckm.select.space import Space
from torch_gckm.select.studies import StorageLike
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits, Trial, quiet
from torch_gckm.select.values import ValueEvaluator, ValueRanking
from torch_gckm.select.workers import bundles, default_workers, in_step, run_all
from torch_gckm.train.labelling import Labelling

ROUGH = Auto(low_rank=LowRank(max_rank=256))
_MEMORY = 2e9  # Bytes of fitted layers that all workers together keep.
_SHOW_EVERY = 2.0  # Seconds between two looks at the best setting.
_SAVE_EVERY = 20.0  # Seconds between two checkpoints.


@in_agreement
def search(
    data: Data,
    space: Space | None = None,
    budget: float | None = 10.0,
    criterion: Criterion = "auto",
    seed: int = 0,
    *,
    max_settings: int | None = None,
    num_classes: int | None = None,
    split: int | None = None,
    gram: GramLike = "auto",
    numeric: bool = False,
    workers: int | None = None,
    progress: bool = True,
    checkpoint: PathLike | None = None,
    storage: StorageLike | None = None,
    study: str = "gckm",
) -> SearchResult:
    """Try settings on a graph with a few labels and rank them; no other choice is needed.

    By default these are settings that did well on other graphs, see :mod:`torch_gckm.select.portfolio`; if more are
    asked for by ``max_settings``, random ones follow. With a ``space`` other than the default one there are random ones
    only. Every setting is a whole model at step 0: kernel PCA and one linear solve. Settings that share their first
    layers share the work. A setting that fails, or whose readout is ill-posed, is recorded and passed over.

    .. code-block:: python

        result = search(data)
        result.ensemble().predict()

    Args:
        data: Features ``x``, edges, labels ``y`` (-1: unknown) and ``train_mask``.
        space: The settings to draw from at random; by default the default :class:`Space`, after the portfolio.
        budget: The time after which no further setting is begun, in seconds; ``None`` for no limit.
        criterion: How to rank settings, see :mod:`torch_gckm.select.criteria`.
        seed: The same seed draws the same random settings.
        max_settings: The number of settings to try; by default those of the portfolio. A space of your own has no end:
            there, ``None`` means no limit but the time.
        num_classes: The number of classes; by default one more than the largest label.
        split: The column to use of masks ``[n, splits]``.
        gram: How to represent kernel matrices. ``"auto"`` ranks settings by matrices of a lower rank than those
            of the models that the result returns.
        numeric: The labels ``y`` are real targets, ``[n]`` or ``[n, p]`` (NaN: unknown); squared errors of withheld
            ones rank the settings.
        workers: How many settings to fit at a time, each in a process with one core; by default as many as torch
            uses threads, and one on large graphs, where one fit keeps them all busy.
        progress: Show a progress bar.
        checkpoint: A file to write all trials to, now and then; an existing one is continued.
        storage: Where to share the search with other processes, on this machine or on others: the path of an Optuna
            journal on a file system that all of them see, a database URL, or an Optuna storage (extra ``tune``). All
            of them need the same arguments, but for ``budget``, ``workers`` and ``criterion``. Each tries settings that
            no other one tries, until its own time is up or all are tried, and returns those of all processes. A later
            call continues the search.
        study: The name of the search in the storage, which may hold several.
    """
    for name, limit in (("budget", budget), ("max_settings", max_settings)):
        if limit is not None and (not isinstance(limit, int | float) or not limit > 0):
            raise InvalidInputError(f"'{name}' must be a positive number, got {limit!r}")
    if workers is not None and workers < 1:
        raise InvalidInputError(f"'workers' must be positive, got {workers}")
    if checkpoint is not None and storage is not None:
        raise InvalidInputError("a 'storage' keeps what was tried: leave out 'checkpoint'")
    over = partition_of(data)
    if not over.is_whole and (storage is not None or workers not in (None, 1)):
        raise InvalidInputError(
            "processes that have parts of one graph fit one setting at a time: no workers, no storage"
        )
    evaluator = evaluator_for(data, num_classes, gram, split, numeric=numeric)
    is_default = space is None or replace(space, directions=None, weights=None, unit=None) == Space()
    if budget is None and max_settings is None and not is_default:
        raise InvalidInputError("a space has no end: give a 'budget' in seconds, 'max_settings', or both")
    directions, space = None if space is None else space.directions, (space or Space()).on_graph(data)
    if over.is_whole and AS_GIVEN in space.weightings:
        tries = "the search also tries their logarithms, and edges without weights"
        advice = tries if len(space.weightings) > 1 else f"with Space(weights=None) {tries}"
        warn_of_heavy_tail(weights_of(data), advice)
    seen = directions or (space.main_direction,)
    first = portfolio(evaluator.fits.graphs, seen, space.weightings) if is_default else []
    max_settings = len(first) if is_default and max_settings is None else max_settings
    result = SearchResult(evaluator, ranking_for(evaluator, criterion, [promise for _, promise in first]), [])
    tried_first = [[setting.to_dict(), promise] for setting, promise in first]
    identity = {"seed": seed, "portfolio": tried_first, **search_identity(evaluator, space, gram)}
    spent = _resume(checkpoint, result, identity)
    if not over.processes.everywhere(over.processes.of_first(len(result)) == len(result)):
        raise InvalidInputError("processes see different checkpoints; name one on a file system that all of them share")
    shared = None if storage is None else SharedSearch(storage, study, identity, result.ranking.value)
    if shared is not None:
        result.trials = shared.trials()
    if not over.is_whole:
        workers = 1
    if workers is None:  # Several exact kernel matrices might not fit into memory.
        workers = default_workers(data.num_nodes) if isinstance(as_gram(gram), Auto | LowRank) else 1
    if max_settings is not None:
        workers = min(workers, max(1, max_settings if first else math.ceil(max_settings / space.readouts)))
    used = SharedFits(
        evaluator.fits.graphs, evaluator.fits.num_classes, ROUGH if gram == "auto" else gram, _MEMORY / workers
    )
    rough = type(evaluator)(used, evaluator.labels)
    saved = shown = start = time.perf_counter()
    is_shown = progress and over.rank == 0
    with tqdm(total=max_settings, initial=len(result), disable=not is_shown, desc="search", unit=" settings") as bar:

        def done(trial: Trial | None) -> None:
            nonlocal saved, shown
            if trial is not None:
                result.trials.append(trial)
                bar.update()
            now = time.perf_counter()
            if is_shown and now - shown > _SHOW_EVERY:
                waits = {}
                if shared is not None:
                    result.trials = shared.trials()
                    bar.n = len(result)
                    waits = {} if trial is not None else {"waits for": f"{shared.num_running()} settings"}
                bar.set_postfix({**result.progress(), **waits})
                shown = now
            if checkpoint is not None and over.rank == 0 and now - saved > _SAVE_EVERY:
                _save(checkpoint, result, identity, spent + now - start)
                saved = now

        def attempt(number: int) -> Trial | None:
            is_first = number < len(first)
            setting = first[number][0] if is_first else space.setting(number - len(first), seed)
            return rough(number, setting) if shared is None else shared.attempt(number, lambda: rough(number, setting))

        if shared is None:
            numbers = bundles(space.readouts, {trial.number for trial in result.trials}, max_settings, len(first))
        else:
            numbers = shared.work(space.readouts, max_settings, len(first))
        try:
            deadline = None if budget is None else start + budget - spent
            if not over.is_whole:
                numbers, deadline = in_step(numbers, deadline, over), None
            with quiet():
                run_all(attempt, numbers, deadline, workers, done, claims=shared is not None)
        finally:  # Also when it is interrupted.
            if shared is not None:
                result.trials = shared.trials()
            result.trials.sort(key=lambda trial: trial.number)
            if checkpoint is not None and over.rank == 0:
                _save(checkpoint, result, identity, spent + time.perf_counter() - start)
    return result


def evaluator_for(
    data: Data, num_classes: int | None, gram: GramLike, split: int | None, *, numeric: bool = False
) -> Evaluator:
    """For a graph with labels; there is one class more than the largest label unless a number is given."""
    if numeric:
        columns = check_values(labels_of(data), data.num_nodes).size(1)
        return ValueEvaluator(SharedFits(PreparedGraphs(data), columns, gram), Labelling.of_values(data, split))
    classes = count_classes(data) if num_classes is None else num_classes
    labels = Labelling.of(data, classes, split)
    return Evaluator(SharedFits(PreparedGraphs(data), classes, gram), labels)


def ranking_for(evaluator: Evaluator, criterion: Criterion, promises: Sequence[float] = ()) -> Ranking:
    """What ranks the trials of an evaluator; the first ones are of the portfolio, with these promises."""
    if isinstance(evaluator, ValueEvaluator):
        return ValueRanking(criterion, promises)
    return Ranking.of(criterion, evaluator.labels, promises)


def _save(path: PathLike, result: SearchResult, identity: dict[str, Any], seconds: float) -> None:
    trials = [trial.to_dict() for trial in result.trials]
    save_tensors({"identity": identity, "seconds": seconds, "trials": trials}, path)


def _resume(path: PathLike | None, result: SearchResult, identity: dict[str, Any]) -> float:
    """Take over the trials of a checkpoint; returns the seconds they took."""
    if path is None or not Path(path).exists():
        return 0.0
    content = load_tensors(path)
    check_identity(content.get("identity", {}), identity, f"the checkpoint '{path}'")
    result.trials = [Trial.from_dict(trial) for trial in content["trials"]]
    return float(content["seconds"])
