"""Search for settings without validation labels."""

import time
from collections.abc import Sequence
from dataclasses import replace

from torch_geometric.data import Data

from torch_gckm.errors import InvalidInputError
from torch_gckm.files import PathLike
from torch_gckm.gram import Auto, GramLike, LowRank, as_gram
from torch_gckm.graph import AS_GIVEN, warn_of_heavy_tail, warn_of_unusable, weights_of
from torch_gckm.nn.settings import OwnModules
from torch_gckm.partition import Partition, in_agreement, partition_of
from torch_gckm.progress import Bar
from torch_gckm.readout import check_values, count_classes, labels_of
from torch_gckm.select.criteria import Criterion, Ranking
from torch_gckm.select.identity import search_identity
from torch_gckm.select.result import PREPARING, SearchResult
from torch_gckm.select.search_checkpoint import SearchCheckpoint
from torch_gckm.select.search_run import Plan, SearchRun
from torch_gckm.select.shared_search import SharedSearch
from torch_gckm.select.space import Space
from torch_gckm.select.studies import StorageLike
from torch_gckm.select.time_limit import TimeLimit, slowdown_of
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits
from torch_gckm.select.values import ValueEvaluator, ValueRanking
from torch_gckm.select.workers import default_workers
from torch_gckm.train.labelling import Labelling

ROUGH = Auto(low_rank=LowRank(max_rank=256))
_MEMORY = 2e9  # Bytes of fitted layers that all workers together keep.


@in_agreement
def search(
    data: Data,
    space: Space | None = None,
    budget: float | None = 10.0,
    criterion: Criterion = "auto",
    seed: int = 0,
    *,
    max_settings: int | None = None,
    members: int = 0,
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
    layers share the work. A setting that fails, or whose readout is ill-posed, is recorded and passed over. Ctrl-C ends
    the search: what was tried by then is returned with a warning; ``KeyboardInterrupt`` is raised if nothing was.

    .. code-block:: python

        result = search(data)
        result.ensemble().predict()

    Args:
        data: Features ``x``, edges, labels ``y`` (-1: unknown) and ``train_mask``.
        space: The settings to draw from at random; by default the default :class:`Space`, after the portfolio.
        budget: The time after which no further setting is begun, in seconds, preparation of the graph included;
            ``None`` for no limit. Every call has its own, also if it continues a checkpoint.
        criterion: How to rank settings, see :mod:`torch_gckm.select.criteria`.
        seed: The same seed draws the same random settings.
        max_settings: The number of settings to try; by default those of the portfolio. A space of your own has no end:
            there, ``None`` means no limit but the time.
        members: For how many models to leave time in the budget, which an ensemble of the result will need; by default
            for none. Estimated by the settings that were tried, and at most a third of the budget. One setting is
            fitted in any case. See :mod:`torch_gckm.select.time_limit`.
        num_classes: The number of classes; by default one more than the largest label.
        split: The column to use of masks ``[n, splits]``.
        gram: How to represent kernel matrices. ``"auto"`` ranks settings by matrices of a lower rank than those
            of the models that the result returns.
        numeric: The labels ``y`` are real targets, ``[n]`` or ``[n, p]`` (NaN: unknown); squared errors of withheld
            ones rank the settings.
        workers: How many settings to fit at a time, each in a process with one core; by default as many as torch
            uses threads, and one on large graphs, where one fit keeps them all busy.
        progress: Show what is being done, and the time left.
        checkpoint: A file to write all trials to, now and then; an existing one is continued, and none of its settings
            is tried again.
        storage: Where to share the search with other processes, on this machine or on others: the path of an Optuna
            journal on a file system that all of them see, a database URL, or an Optuna storage (extra ``tune``). All
            of them need the same arguments, but for ``budget``, ``workers`` and ``criterion``. Each tries settings that
            no other one tries, until its own time is up or all are tried, and returns those of all processes. A later
            call continues the search.
        study: The name of the search in the storage, which may hold several.
    """
    _check_arguments(space, budget, max_settings, workers, members, checkpoint, storage)
    over = partition_of(data)
    if not over.is_whole and (storage is not None or workers not in (None, 1)):
        raise InvalidInputError(
            "processes that have parts of one graph fit one setting at a time: no workers, no storage"
        )
    rough_gram = ROUGH if gram == "auto" else as_gram(gram)
    start = time.perf_counter()
    limit = TimeLimit(budget, members, slowdown_of(as_gram(gram), rough_gram, data.num_nodes or 0), over.processes)
    with Bar(PREPARING, shown=progress and over.rank == 0):
        own = (space or Space()).own
        evaluator = evaluator_for(data, num_classes, gram, split, numeric=numeric, own=own)
        graphs, drawn = evaluator.fits.graphs, (space or Space()).on_graph(data)
        _warn_of_weights(data, drawn, over)
        directions = None if space is None else space.directions
        plan = Plan.of(drawn, directions, graphs if _is_default(space) else None, max_settings, seed)
        tried_first = [[setting.to_dict(), promise] for setting, promise in plan.first]
        identity = {"seed": seed, "portfolio": tried_first, **search_identity(evaluator, drawn, gram)}
    if workers is None:  # Several exact kernel matrices might not fit into memory.
        workers = default_workers(data.num_nodes) if isinstance(as_gram(gram), Auto | LowRank) else 1
    workers = int(min(workers, plan.most_workers)) if over.is_whole else 1
    rough = type(evaluator)(
        SharedFits(graphs, evaluator.fits.num_classes, rough_gram, _MEMORY / workers, own), evaluator.labels
    )
    result = SearchResult(evaluator, ranking_for(evaluator, criterion, plan.promises), [], rough)
    shared = None if storage is None else SharedSearch(storage, study, identity, result.ranking.value)
    run = SearchRun(result, rough, plan, limit, SearchCheckpoint(checkpoint, identity), shared, progress)
    run.resume()
    prepared = time.perf_counter()
    run.run(workers)
    if not members:  # Else the ensemble may use its layers.
        rough.fits.forget()
    result.seconds = {PREPARING: prepared - start, "search": time.perf_counter() - prepared}
    return result


def _check_arguments(
    space: Space | None, budget: float | None, max_settings: int | None, workers: int | None, members: int,
    checkpoint: PathLike | None, storage: StorageLike | None,
) -> None:  # fmt: skip
    for name, limit in (("budget", budget), ("max_settings", max_settings)):
        if limit is not None and (not isinstance(limit, int | float) or not limit > 0):
            raise InvalidInputError(f"'{name}' must be a positive number, got {limit!r}")
    if workers is not None and workers < 1:
        raise InvalidInputError(f"'workers' must be positive, got {workers}")
    if members < 0:
        raise InvalidInputError(f"'members' must not be negative, got {members}")
    if checkpoint is not None and storage is not None:
        raise InvalidInputError("a 'storage' keeps what was tried: leave out 'checkpoint'")
    if budget is None and max_settings is None and not _is_default(space):
        raise InvalidInputError("a space has no end: give a 'budget' in seconds, 'max_settings', or both")


def _is_default(space: Space | None) -> bool:
    """Whether a space says nothing but which directions and weights to try."""
    return space is None or replace(space, directions=None, weights=None, unit=None) == Space()


def _warn_of_weights(data: Data, space: Space, over: Partition) -> None:
    if over.is_whole:
        warn_of_unusable(weights_of(data))
    if over.is_whole and AS_GIVEN in space.weightings:
        tries = "the search also tries their logarithms, and edges without weights"
        advice = tries if len(space.weightings) > 1 else f"with Space(weights=None) {tries}"
        warn_of_heavy_tail(weights_of(data), advice)


def evaluator_for(
    data: Data, num_classes: int | None, gram: GramLike, split: int | None, *, numeric: bool = False,
    own: OwnModules | None = None,
) -> Evaluator:  # fmt: skip
    """For a graph with labels; there is one class more than the largest label unless a number is given."""
    if numeric:
        columns = check_values(labels_of(data), data.num_nodes).size(1)
        return ValueEvaluator(
            SharedFits(PreparedGraphs(data), columns, gram, own=own), Labelling.of_values(data, split)
        )
    classes = count_classes(data) if num_classes is None else num_classes
    labels = Labelling.of(data, classes, split)
    return Evaluator(SharedFits(PreparedGraphs(data), classes, gram, own=own), labels)


def ranking_for(evaluator: Evaluator, criterion: Criterion, promises: Sequence[float] = ()) -> Ranking:
    """What ranks the trials of an evaluator; the first ones are of the portfolio, with these promises."""
    if isinstance(evaluator, ValueEvaluator):
        return ValueRanking(criterion, promises)
    return Ranking.of(criterion, evaluator.labels, promises)
