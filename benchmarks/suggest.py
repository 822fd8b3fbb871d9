"""Is it worth labelling the nodes that ``suggest`` names? Accuracies after labelling them, or others.

    python benchmarks/suggest.py --root DATA        # a table, and JSON in out/

A search sees two labels per class at random. Then as many nodes again are labelled: those that
``suggest`` names, those with the smallest gap between the two largest probabilities, or random ones;
and a second search sees all of them. Accuracies are of the nodes that none of the three has labelled.
"""

import argparse
import json
import platform
import statistics
from pathlib import Path
from typing import Any

import torch
from experiments.common import seen_by
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_gckm import __version__
from torch_gckm.datasets import PerClassSplit, load
from torch_gckm.select import GCKMEnsemble, search

WAYS = ("suggest", "doubt", "random")


def fit(data: Data, classes: int, settings: int) -> GCKMEnsemble:
    seen = seen_by(data, data.train_mask)
    return search(seen, budget=None, max_settings=settings, num_classes=classes, progress=False).ensemble()


def chosen_by(way: str, ensemble: GCKMEnsemble, data: Data, count: int, seed: int) -> Tensor:
    if way == "suggest":
        return ensemble.suggest(count)
    if way == "doubt":
        top = ensemble.predict_proba().topk(2, dim=1).values
        return (top[:, 0] - top[:, 1] + data.train_mask).argsort()[:count]
    free = (~data.train_mask).nonzero().squeeze(1)
    return free[torch.randperm(free.numel(), generator=torch.Generator().manual_seed(seed))[:count]]


def run(name: str, root: str | None, seed: int, settings: int) -> dict[str, Any]:
    data = load(name, root)
    classes = int(data.y.max()) + 1
    data = PerClassSplit(2, seed=seed)(data)
    first = fit(data, classes, settings)
    added = {way: chosen_by(way, first, data, 2 * classes, seed) for way in WAYS}
    test = ~data.train_mask
    test[torch.cat(list(added.values()))] = False
    accuracy = {"before": 100 * float((first.predict() == data.y)[test].double().mean())}
    for way, nodes in added.items():
        more = data.clone()
        more.train_mask = data.train_mask.index_fill(0, nodes, True)
        accuracy[way] = 100 * float((fit(more, classes, settings).predict() == data.y)[test].double().mean())
    return {"dataset": name, "split": seed, "settings": settings, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT)")
    parser.add_argument("--datasets", nargs="*", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--settings", type=int, default=60, help="settings of a search")
    parser.add_argument("--out", type=Path, default=Path("out/suggest.json"))
    args = parser.parse_args()
    jobs = [(name, seed) for name in args.datasets for seed in range(args.splits)]
    rows = [run(name, args.root, seed, args.settings) for name, seed in tqdm(jobs)]
    print(f"{'dataset':<10}" + "".join(f"{way:>16}" for way in ("before", *WAYS)))
    for name in args.datasets:
        numbers = [[r["accuracy"][way] for r in rows if r["dataset"] == name] for way in ("before", *WAYS)]
        cells = [f"{statistics.mean(part):.1f} ± {statistics.pstdev(part):.1f}" for part in numbers]
        print(f"{name:<10}" + "".join(f"{cell:>16}" for cell in cells))
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    content = {"benchmark": "suggest", "version": __version__, "torch": torch.__version__, "machine": machine}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**content, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
