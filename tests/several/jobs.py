"""What tests run in every process: each job makes the whole graph, and fits the part of its process if asked to."""

import pickle

import numpy as np
import torch
from torch_geometric.data import Data

from torch_gckm import GCKM, GCKMClassifier, GCKMClustering, Trainer, panels
from torch_gckm.datasets import read_shard
from torch_gckm.errors import GCKMError
from torch_gckm.gram import LowRank
from torch_gckm.graph import ShardedGraph, is_directed, processes_of
from torch_gckm.graph.halo import local_numbers
from torch_gckm.kernels import RBF
from torch_gckm.partition import WHOLE, Partition
from torch_gckm.select import GCKMEnsemble, Space, search
from torch_gckm.select.trial import PreparedGraphs, SharedFits

COLUMNS, CLASSES, WORDS = 12, 4, 200


def random_graph(n=403, dtype=torch.float64, seed=0, sparse=False, per_class=8):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=generator)
    centres = torch.randn(CLASSES, COLUMNS, generator=generator, dtype=torch.float64)
    x = centres[y] + 1.5 * torch.randn(n, COLUMNS, generator=generator, dtype=torch.float64)
    if sparse:  # So sparse that propagated features are sparse, too; no row is empty.
        words = torch.rand(n, WORDS, generator=generator) < 0.01
        words[torch.arange(n), 3 * torch.arange(n) % WORDS] = True
        words[torch.arange(n), y] = True
        x = words.double().to_sparse_csr()
    edges = torch.randint(n, (2, 4 * n), generator=generator)
    kept = (y[edges[0]] == y[edges[1]]) | (torch.rand(edges.size(1), generator=generator) < 0.2)
    edges = edges[:, kept]
    order = torch.randperm(n, generator=generator)
    train = torch.zeros(n, dtype=torch.bool)
    for group in range(CLASSES):
        train[order[y[order] == group][:per_class]] = True
    val = ~train & (torch.rand(n, generator=generator) < 0.2)
    masks = {"train_mask": train, "val_mask": val, "test_mask": ~train & ~val}
    return Data(x=x.to(dtype), edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, **masks)


def directed_graph():
    graph = random_graph(201)
    graph.edge_index = graph.edge_index[:, : graph.edge_index.size(1) // 2]
    graph.edge_weight = torch.rand(graph.edge_index.size(1), generator=torch.Generator().manual_seed(1)) + 0.5
    return graph


def graph_to_fit(sharded, make=random_graph, **options):
    graph = make(**options)
    return ShardedGraph.cut(graph) if sharded else graph


def new_model(hidden=(12, 6), rank=64, columns=COLUMNS, **options):
    return GCKM(columns, hidden, CLASSES, gram=LowRank(max_rank=rank), **options).double()


FITS = {
    "gcn": {},
    "hops": {"aggregation": ["ssgc", "none"], "hops": [3, 1], "normalize": "columns"},
    "directed": {"make": directed_graph, "aggregation": "mean", "direction": ["out", "both"], "normalize": "l2"},
    "views": {"hidden": (8,), "kernel": ["laplacian", RBF() * RBF(60.0).on("x")], "aggregation": "ppr", "hops": 2},
    "sparse": {"data": {"sparse": True}, "columns": WORDS, "normalize": "l2"},
    "filled up": {"data": {"sparse": True}, "columns": WORDS, "hops": 5, "normalize": "columns"},
    "no layers": {"hidden": (), "hops": 2},
}


def fit(sharded, steps, make=random_graph, data=None, **options):
    """A fitted model in numbers: embeddings and scores of this process's nodes, and what all processes share."""
    graph, model = graph_to_fit(sharded, make, **(data or {})), new_model(**options)
    history = Trainer(model, steps=steps, progress=False, monitor="val_acc").fit(graph)
    records = [{k: v for k, v in vars(record).items() if k != "seconds"} for record in history]
    return {
        "rows": [*(conv.h.detach() for conv in model.layers), model.readout.scores, model.readout.h.detach()],
        "landmarks": [*(conv.fit.landmarks for conv in model.layers), model.readout.fit.landmarks],
        "records": [list(record.values()) for record in records],
        "identity": model.data_id,
        "summary": model.summary(),
        "sent": sum(graph.partition.processes.sent.values()) if sharded else 0,
    }


def single_precision(sharded, n=50_000):
    """A fit of a larger graph in single precision, and what a process has sent."""
    graph = graph_to_fit(sharded, n=n, dtype=torch.float32)
    model = GCKM(COLUMNS, (16, 8), CLASSES, gram=LowRank(max_rank=256, tol=0.0))
    Trainer(model, steps=1, progress=False).fit(graph)
    landmarks = [*(conv.fit.landmarks for conv in model.layers), model.readout.fit.landmarks]
    sent = dict(graph.partition.processes.sent) if sharded else {}
    return {"landmarks": landmarks, "scores": model.readout.scores, "sent": sent}


def gradients(sharded, **options):
    """The gradients of the objective with respect to embeddings, [n, s] each, and to learned numbers."""
    graph, model = graph_to_fit(sharded), new_model(**options)
    model.initialize(graph)
    with torch.no_grad():
        model.solve(graph)
    loss = model.loss(graph)
    loss.backward()
    learned = [p.grad for name, p in model.named_parameters() if "log_" in name]
    return {"rows": [conv.h.grad for conv in model.layers], "same": [loss.detach(), *learned]}


def learned_kernels(sharded):
    return gradients(sharded, kernel=[RBF(learnable=True), RBF(0.5, learnable=True), RBF(0.8, learnable=True)])


def extended(sharded):
    """What is predicted for another graph, by a model that is fitted to the parts of one, and its file's content."""
    model = new_model(kernel=["rbf", "rbf", RBF() * RBF(60.0).on("x")])
    Trainer(model, steps=2, progress=False).fit(graph_to_fit(sharded))
    other = graph_to_fit(sharded, n=157, seed=5)
    inductive = model.inductive()
    same = {name: value for name, value in inductive.state_dict().items() if value.is_floating_point()}
    rows = [model.scores(other), inductive.scores(other), model.embed(other), inductive.predict_proba(other)]
    return {"rows": rows, "same": list(same.values()), "names": list(same)}


def asked_about_the_whole(sharded):
    """A model that is fitted to parts of a graph, and asked about all of it by each process."""
    model = new_model()
    Trainer(model, steps=0, progress=False).fit(graph_to_fit(sharded))
    asked = model if sharded else model.inductive()  # Which does not know the graph again.
    return {"scores": asked.scores(random_graph())}


def shared_layers_are_forgotten():
    """Processes that keep layers until these take much memory, of which they have unequal parts."""
    graph = random_graph(dtype=torch.float32)
    over, bounds = processes_of(), [0, 50, 403]
    start, stop = bounds[over.rank], bounds[over.rank + 1]
    own = (graph.edge_index[1] >= start) & (graph.edge_index[1] < stop)
    parts = {name: graph[name][start:stop] for name in ("x", "y", "train_mask")}
    part = ShardedGraph(Data(edge_index=graph.edge_index[:, own], **parts))
    fits = SharedFits(PreparedGraphs(part), CLASSES, LowRank(max_rank=32), max_bytes=6e4)
    settings = [Space(powers=(0.5,)).setting(number, 0) for number in range(8)]
    return [len(fits.fit(setting).layers) for setting in settings]


def searched(sharded, numeric=False):
    graph = graph_to_fit(sharded, dtype=torch.float32, n=500, per_class=4)
    if numeric:
        graph.y = torch.where(graph.train_mask, graph.y.float(), torch.nan)
    result = search(graph, budget=None, max_settings=2, gram=LowRank(max_rank=96), progress=False, numeric=numeric)
    ensemble = result.ensemble(2)
    trials = [(trial.number, str(trial.setting), trial.error) for trial in result.trials]
    measures = [torch.tensor(list(trial.measures.values())) for trial in result.trials]
    rows = [ensemble.predict(), ensemble.scores() if numeric else ensemble.predict_proba()]
    return {"rows": rows, "trials": trials, "measures": measures, "ranked": [trial.number for trial in result.ranked()]}


def classified(sharded):
    graph = graph_to_fit(sharded, dtype=torch.float32, n=500, per_class=4)
    classifier = GCKMClassifier(max_settings=2, budget=None, gram=LowRank(max_rank=96), progress=False)
    classifier.fit(graph)
    return {"rows": [classifier.predict(), classifier.predict_proba()], "score": classifier.score(graph)}


def read_and_fit(folder):
    graph = read_shard(folder)
    model = new_model()
    Trainer(model, steps=0, progress=False).fit(graph)
    return {"rows": [model.readout.scores], "directed": is_directed(graph)}


def fit_by_name(sharded, name):
    return fit(sharded, 0) if name == "step 0" else fit(sharded, 3 if name == "gcn" else 1, **FITS[name])


def several(sharded, fits, others, folder):
    """Fits by their names, and some of the above, so that processes start once."""
    jobs = {
        "operations": lambda: operations(sharded),
        "gradients": lambda: gradients(sharded),
        "learned kernels": lambda: learned_kernels(sharded),
        "extended": lambda: extended(sharded),
        "folder": lambda: read_and_fit(folder),
    }
    return {name: fit_by_name(sharded, name) for name in fits} | {name: jobs[name]() for name in others}


def searches(sharded):
    """Searches, the classifier, and what a model fitted to parts says of a whole graph."""
    forgotten = shared_layers_are_forgotten() if sharded else None
    return {
        "forgotten": forgotten,
        "asked": asked_about_the_whole(sharded),
        "classes": searched(sharded),
        "numbers": searched(sharded, numeric=True),
        "classifier": classified(sharded),
    }


def message_of(job, *arguments):
    """The type and text of the error that a job raises in this process."""
    try:
        job(*arguments)
    except (GCKMError, ValueError) as error:
        return type(error).__name__, str(error)
    return None


def nan_in_the_second():
    graph = random_graph()
    graph.x[250, 3] = torch.nan
    return Trainer(new_model(), progress=False).fit(ShardedGraph.cut(graph))


def labels_of_the_first_only():
    """A process without labels is no error."""
    graph = random_graph()
    graph.train_mask[120:] = False
    scores = Trainer(new_model(), steps=1, progress=False).fit(ShardedGraph.cut(graph))
    return scores.best_step


def no_label_at_all():
    graph = random_graph()
    graph.train_mask[:] = False
    return Trainer(new_model(), progress=False).fit(ShardedGraph.cut(graph))


def bad_label_in_the_last():
    graph = random_graph()
    graph.y[graph.train_mask.nonzero()[-1]] = CLASSES + 3
    return Trainer(new_model(), progress=False).fit(ShardedGraph.cut(graph))


def foreign_edge():
    graph = ShardedGraph.cut(random_graph())
    if graph.partition.rank == 1:
        graph.edge_index[1, 0] = 0
    return new_model().initialize(graph)


def numbers_as_mask():
    graph = random_graph()
    part = ShardedGraph.cut(graph)
    return ShardedGraph(Data(x=part.x, edge_index=part.edge_index, train_mask=torch.arange(3)))


def too_few_nodes():
    return ShardedGraph.cut(Data(x=torch.zeros(2, 1), edge_index=torch.empty(2, 0, dtype=torch.long)))


def exact_matrices():
    return GCKM(COLUMNS, (6,), CLASSES, gram="dense").initialize(ShardedGraph.cut(random_graph(dtype=torch.float32)))


def another_kind_of_error():
    """One whose class takes other arguments than a message."""
    over = ShardedGraph.cut(random_graph()).partition
    with over.agreed():
        if over.rank == 1:
            b"\xff".decode()


def all_messages():
    """Errors one after the other: processes stay in step after each."""
    jobs = (
        nan_in_the_second, no_label_at_all, bad_label_in_the_last, foreign_edge, numbers_as_mask, another_kind_of_error,
        too_few_nodes,
        exact_matrices,
    )  # fmt: skip
    return {job.__name__: message_of(job) for job in jobs} | {"works": labels_of_the_first_only()}


def refused_afterwards():
    """What a fitted model refuses because it needs all rows in one process."""
    graph = ShardedGraph.cut(random_graph(dtype=torch.float32))
    model = GCKM(COLUMNS, (6,), CLASSES, gram=LowRank(max_rank=48))
    Trainer(model, steps=0, progress=False).fit(graph)
    known = torch.arange(graph.x.size(0))
    ensemble = GCKMEnsemble([model])
    jobs = (
        model.predict_set, lambda: model.scores(graph, known=known), ensemble.suggest,
        lambda: ensemble.save("whole.pt"), lambda: pickle.dumps(model), lambda: GCKMClustering(2).fit(graph),
    )  # fmt: skip
    part = ShardedGraph.cut(random_graph(dtype=torch.float32))
    trainer = Trainer(GCKM(COLUMNS, (6,), CLASSES), nodes=0.5, progress=False)
    return [message_of(job) for job in (*jobs, lambda: trainer.fit(part))]


def operations(sharded):
    """Every function of panels that looks at rows, of the same rows."""
    n = 5003
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    weight = torch.rand(n, generator=generator, dtype=torch.float64)
    groups = torch.randint(9, (n,), generator=generator)
    over, rows = WHOLE, slice(0, n)
    if sharded:
        processes = processes_of()
        bounds = [0, 1, n][: processes.world + 1] if processes.world == 2 else [0, 1700, 1701, n]
        over = Partition(bounds, processes)
        rows = slice(bounds[processes.rank], bounds[processes.rank + 1])
    x, weight, groups = x[rows], weight[rows], groups[rows]
    index = torch.tensor([5002, 0, 1700, 1, 0])
    normal = panels.random_normal(x.size(0), 3, 7, over)
    return {
        "rows": [panels.centred(x, over), panels.fix_signs(x, over), panels.orthonormalize(x, over), normal],
        "same": [
            panels.total(x, over), panels.mean(x, over), panels.column_sums(x, over), panels.column_means(x, over),
            panels.column_spread(x, over), panels.spread(x, over), panels.counts(groups, over=over),
            panels.counts(groups, 12, over), panels.sums_by(groups, weight, 9, over), panels.cross(x, x, over),
            panels.double_gram(x, over), *panels.moments(x, weight, over=over),
            panels.largest(x, over), panels.smallest(x, over),
            panels.place_of_largest(weight, over), torch.tensor(panels.count(weight > 0.5, over)),
            torch.tensor(panels.first(weight > 0.99, over)), panels.rows_where(weight > 0.99, over),
            torch.tensor(panels.holds_somewhere(weight > 0.999, over)),
            torch.tensor(panels.holds_everywhere(weight > 0.0, over)), panels.mean(x[:0], over),
            panels.draw(weight.clone(), 300, np.random.default_rng(5), over), over.pick(x, index),
            over.pick(groups > 4, index), over.unit(weight, torch.tensor(1700)).nonzero()[:0],
        ],
    }  # fmt: skip


def halo_gradient():
    """Rows of others, and what their gradients add up to: every process reads each of five rows once."""
    over = Partition.of(4, processes_of())
    x = torch.arange(4.0).add(10 * over.rank).unsqueeze(1).requires_grad_()
    nodes = torch.tensor([0, 3, 4, 5, 7])
    places, halo = local_numbers(nodes, 4, over)
    read = halo.extended(x)[places]
    (gradient,) = torch.autograd.grad((read * torch.arange(1.0, 6.0).unsqueeze(1)).sum(), x)
    return {"read": read.detach(), "gradient": gradient}
