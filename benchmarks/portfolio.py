"""What ``torch_gckm/select/portfolio.py`` rests on: settings on development graphs, and the list that they give.

    python benchmarks/portfolio.py measure --root DATA     # fits all candidates; interrupt and repeat at will
    python benchmarks/portfolio.py choose                  # writes the list, and what each setting promises
    python benchmarks/portfolio.py choose --without cora --list out/portfolio.jsonl   # that of the other graphs
    python benchmarks/portfolio.py rank                    # ensembles by the weight of withheld labels, and by size

``measure`` fits every candidate to every development graph, with splits whose seeds are 1000 and more, and keeps its
standardised scores of some test nodes and what withheld labels say. A setting's accuracy is standardised among all
candidates in a cell: a graph, a number of labels per class and a split. ``choose`` adds settings to a list, always the
one that raises the mean over cells of the three best in the list most; a setting promises its mean over smooth graphs,
or over the others. The ensembles of ``rank`` are of the settings that a search would rank first, without its rules
about settings that collapsed, are near chance or share an embedding; lists were chosen without the graph that they are
judged by.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.errors import GCKMError
from torch_gckm.graph import Normalize
from torch_gckm.kernels import RBF, Kernel
from torch_gckm.nn import GCKM, LayerSettings, ModelSettings, PropagationSettings, ReadoutSettings
from torch_gckm.readout import class_similarity
from torch_gckm.select.portfolio import PORTFOLIO, SHARE_OF_SMOOTH, SMOOTH_FROM, smoothness
from torch_gckm.select.search import ROUGH as COARSE
from torch_gckm.select.space import Space, direction_kernel
from torch_gckm.select.trial import Evaluator, PreparedGraphs, SharedFits, Trial, quiet
from torch_gckm.train.labelling import Labelling

DATASETS = (
    "cora", "citeseer", "cora_ml", "photo", "pubmed", "chameleon", "squirrel", "actor", "wisconsin", "minesweeper",
    "reed98",
)  # fmt: skip
LABELS, SPLITS = (1, 2, 5, 20), (1000, 1001, 1002)
TEST_NODES = 1000  # Of every cell, for comparing settings.
LENGTH = 48  # Settings of the list.
BEST = 3  # So many good ones should be in it for every cell.
RANDOM = 240  # Candidates that are drawn from the space of a search.

Width = float | None  # The relative squared bandwidth of an RBF kernel; None: the kernel compares directions only.
Readout = tuple[Width, float, float]  # Bandwidth, eta, lambda2.
NORMALIZE = (None, "l2", "columns")
HOPS = (
    ("none", 1), ("gcn", 1), ("gcn", 2), ("mean", 1), ("mean", 2), ("sum", 1), ("ssgc", 4), ("ssgc", 16), ("ppr", 10)
)  # fmt: skip
READOUTS = ((10.0, 1.05, 0.1), (2.0, 1.05, 0.1), (10.0, 1.01, 1.0))


def candidates() -> list[ModelSettings]:
    """Models without layers, with one and with two, over scalings, propagations, powers, kernels and readouts.

    Some on a grid, and random ones. All weigh classes alike.
    """
    draw = random.Random(0)
    entries: list[Any] = list(itertools.product(NORMALIZE, HOPS, READOUTS))
    one = list(itertools.product((1.0, 10.0), (32, 128), (0.5, 1.0)))
    for normalize, hops in itertools.product(NORMALIZE, HOPS):
        entries += [(normalize, ((hops, *layer),), draw.choice(READOUTS)) for layer in draw.sample(one, 4)]
    for normalize, hops in itertools.product(NORMALIZE, HOPS):
        then = draw.choice((("none", 1), ("gcn", 1), ("mean", 1), ("gcn", 2)))
        width, channels, power = draw.choice((1.0, 10.0)), draw.choice((32, 64)), draw.choice((0.0, 0.5, 0.5))
        layers = tuple((step, width, channels, power) for step in (hops, then))
        entries.append((normalize, layers, draw.choice(READOUTS)))
    for normalize, hops in itertools.product(NORMALIZE, HOPS):  # Kernels of directions.
        entries += [(normalize, hops, (None, *numbers)) for _, *numbers in READOUTS[1:]]
        for channels in (32, 128):
            layer = (hops, None, channels, draw.choice((0.5, 1.0)))
            entries.append((normalize, (layer,), draw.choice(READOUTS)))
    return [settings_of(*entry) for entry in entries] + random_settings()


def random_settings() -> list[ModelSettings]:
    """Settings as a search draws them, of two seeds in turn, so that those that share layers are neighbours."""
    space = Space(directions=("in",), class_weight=("balanced",))
    starts = range(0, RANDOM // 2, space.readouts)
    return [
        space.setting(start + number, seed) for start in starts for seed in (0, 1) for number in range(space.readouts)
    ]


def settings_of(normalize: Normalize, body: Any, readout: Readout) -> ModelSettings:
    """With layers, each a propagation, a bandwidth, channels and a power, or with the propagation of features alone."""
    width, eta, lambda2 = readout
    last = ReadoutSettings(kernel_of(width).config(), eta=eta, lambda2=lambda2, class_weight="balanced")
    if isinstance(body[0], str):
        return ModelSettings((), last, normalize, PropagationSettings(*body))
    layers = [
        LayerSettings(channels, kernel_of(bandwidth).config(), PropagationSettings(*hops), power)
        for hops, bandwidth, channels, power in body
    ]
    return ModelSettings(tuple(layers), last, normalize)


def kernel_of(width: Width) -> Kernel:
    return direction_kernel() if width is None else RBF(scale=width)


def measure(name: str, root: str | None, folder: Path) -> None:
    """Write the scores of all candidates on a graph, a file per cell."""
    data = load(name, root)
    if name == "minesweeper":
        data.y = data.y.long()
    counts = data.y[data.y >= 0].bincount()
    cells = [(labels, split) for labels in LABELS if int(counts.min()) >= labels + 5 for split in SPLITS]
    cells = [cell for cell in cells if not path_of(folder, name, *cell).exists()]
    if not cells:
        return
    graphs = PreparedGraphs(data)
    fits = SharedFits(graphs, len(counts), COARSE, 2e9)
    evaluators, nodes = {}, {}
    for labels, split in cells:
        seen = PerClassSplit(labels, seed=split)(data.clone())
        evaluators[labels, split] = Evaluator(fits, Labelling.of(seen, len(counts)))
        test = seen.test_mask.nonzero().view(-1)
        nodes[labels, split] = test[torch.randperm(test.numel(), generator=generator(split))[:TEST_NODES]]
    found: dict[Any, list[Any]] = {cell: [] for cell in cells}
    for number, setting in enumerate(tqdm(candidates(), desc=name)):
        model = None
        for cell in cells:
            trial, kept = Trial(number, setting), None
            try:
                with quiet(), torch.no_grad():
                    model = solved(evaluators[cell], setting, model)
                    evaluators[cell].measure(trial, model)
                    scores = class_similarity(model.readout.scores, model.readout.codes)
                    kept = (scores / scores.std().clamp(min=1e-12))[nodes[cell]].numpy().astype(np.float16)
            except (GCKMError, RuntimeError):
                trial.measures = {}
            found[cell].append((kept, trial.measures))
    for cell in cells:
        save(path_of(folder, name, *cell), found[cell], data.y[nodes[cell]].numpy(), smoothness(graphs))


def solved(evaluator: Evaluator, setting: Any, model: GCKM | None) -> GCKM:
    """The model of a setting; with other labels, layers and kernel matrix are used again."""
    if model is None:
        return evaluator.solve(setting)
    model.readout.solve_again(evaluator.labels.targets)
    return model


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def path_of(folder: Path, name: str, labels: int, split: int) -> Path:
    return folder / f"{name}-{labels}-{split}.npz"


def save(path: Path, found: list[Any], y: np.ndarray, smooth: float) -> None:
    shape = next(scores.shape for scores, _ in found if scores is not None)
    scores = np.stack([np.full(shape, np.nan, np.float16) if part is None else part for part, _ in found])
    path.parent.mkdir(parents=True, exist_ok=True)
    measures = json.dumps([measures for _, measures in found])
    np.savez_compressed(path, scores=scores, y=y, smoothness=smooth, measures=measures)


class Cell:
    """What is known of the candidates on one graph with so many labels per class."""

    def __init__(self, path: Path) -> None:
        self.dataset, labels, _ = path.stem.split("-")
        self.labels = int(labels)
        content = np.load(path)
        self.y, self.smooth = content["y"], float(content["smoothness"]) >= SMOOTH_FROM
        scores = content["scores"].astype(np.float32)
        self.valid = np.isfinite(scores).all(axis=(1, 2))
        self.scores = np.where(self.valid[:, None, None], scores, 0.0)
        measures = json.loads(str(content["measures"]))
        self.withheld = np.array([withheld(part) for part in measures])
        found = np.array([self.accuracy([number]) for number in range(len(scores))])
        spread = found[self.valid].std() + 1e-9
        self.worth = np.where(self.valid, (found - found[self.valid].mean()) / spread, -1.0)

    def accuracy(self, members: list[int]) -> float:
        """Of the mean of some settings' scores, in percent."""
        return 100.0 * float((self.scores[members].sum(axis=0).argmax(axis=1) == self.y).mean())


def withheld(measures: dict[str, float]) -> float:
    """The geometric mean of the calibrated probabilities of withheld labels; NaN of a setting that failed."""
    if not measures:
        return math.nan
    loss = measures["per_class_out_loss"]
    return math.exp(measures["leave_one_out_loss"] if math.isnan(loss) else loss)


def cover(cells: list[Cell], length: int = LENGTH, among: int | None = None) -> list[int]:
    """Settings in the order in which they raise the mean of the best ones in every cell; every graph counts alike.

    They are chosen ``among`` the first so many candidates, by default all.
    """
    share = np.array([1 / sum(other.dataset == cell.dataset for other in cells) for cell in cells])
    worth = np.array([cell.worth for cell in cells])
    best, chosen = np.full((len(cells), BEST), -1.0), list[int]()
    for _ in range(length):
        with_each = np.concatenate([np.repeat(best[:, None], worth.shape[1], axis=1), worth[:, :, None]], axis=2)
        gain = share @ np.sort(with_each, axis=2)[:, :, 1:].mean(axis=2)
        gain[chosen] = -np.inf
        gain[len(gain) if among is None else among :] = -np.inf
        chosen.append(int(gain.argmax()))
        best = np.sort(np.column_stack([best, worth[:, chosen[-1]]]), axis=1)[:, 1:]
    return chosen


def promise(cells: list[Cell], smooth: bool) -> np.ndarray:
    """What every candidate is worth on graphs of a kind."""
    kind = [cell for cell in cells if cell.smooth == smooth]
    graphs = {cell.dataset for cell in kind}
    return np.mean([np.mean([cell.worth for cell in kind if cell.dataset == name], axis=0) for name in graphs], axis=0)


def mixed(cells: list[Cell], smooth: bool) -> np.ndarray:
    """What every candidate promises on a graph whose features are smooth, or not; see ``SHARE_OF_SMOOTH``."""
    share = SHARE_OF_SMOOTH[smooth]
    return share * promise(cells, True) + (1.0 - share) * promise(cells, False)


def choose(cells: list[Cell], path: Path) -> None:
    settings, worth = candidates(), {"smooth": promise(cells, True), "other": promise(cells, False)}
    lines = []
    for number in cover(cells):
        promises = {kind: round(float(part[number]), 2) for kind, part in worth.items()}
        lines.append(json.dumps({"promise": promises, "settings": settings[number].to_dict()}) + "\n")
        print(promises, settings[number])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


def rank(cells: list[Cell], mistaken: bool = False, among: int | None = None) -> None:
    """Accuracy by labels per class and by graph, of lists that were chosen without the graph.

    ``mistaken`` takes smooth graphs for others, and the other way round; ``among`` is that of :func:`cover`.
    """
    sizes, priors = (4, 8, 12, 20), (0.0, 3.0, 6.0, 12.0, math.inf)
    table: dict[Any, list[float]] = {}
    for name in sorted({cell.dataset for cell in cells}):
        others = [cell for cell in cells if cell.dataset != name]
        numbers = cover(others, among=among)
        for cell in (cell for cell in cells if cell.dataset == name):
            tried = [number for number in numbers if cell.valid[number]]
            promised = standardised(mixed(others, cell.smooth != mistaken)[tried])
            labels = standardised(np.nan_to_num(cell.withheld[tried]))
            for prior, size in itertools.product(priors, sizes):
                weight = 0.0 if cell.labels == 1 else cell.labels / (cell.labels + prior)
                best = np.argsort(-(weight * labels + (1.0 - weight) * promised), kind="stable")[:size]
                value = cell.accuracy([tried[place] for place in best])
                for group in (cell.labels, cell.dataset, "all"):
                    table.setdefault((prior, size, group), []).append(value)
    groups = [*LABELS, *sorted({cell.dataset for cell in cells}), "all"]
    print("prior  size " + " ".join(f"{str(group)[:7]:>7}" for group in groups))
    for prior, size in itertools.product(priors, sizes):
        print(f"{prior:5g}  {size:4d} " + " ".join(f"{np.mean(table[prior, size, group]):7.1f}" for group in groups))


def standardised(values: Any) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return np.asarray((values - values.mean()) / (values.std() + 1e-12))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "choose", "rank"))
    parser.add_argument("--mistaken", action="store_true", help="rank as if smooth graphs were others, and vice versa")
    parser.add_argument("--grid", action="store_true", help="rank lists that were chosen without random settings")
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    parser.add_argument("--without", nargs="*", default=[], help="graphs that have no say")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--list", type=Path, default=PORTFOLIO, help="where to write the list")
    parser.add_argument("--folder", type=Path, default=Path("out/portfolio"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.what == "measure":
        for name in args.datasets:
            measure(name, args.root, args.folder)
        return
    known = [Cell(path) for path in sorted(args.folder.glob("*.npz"))]
    known = [cell for cell in known if cell.dataset in args.datasets and cell.dataset not in args.without]
    if args.what == "choose":
        choose(known, args.list)
    else:
        rank(known, args.mistaken, len(candidates()) - RANDOM if args.grid else None)


if __name__ == "__main__":
    main()
