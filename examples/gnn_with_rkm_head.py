"""The readout as the head of a GNN, next to the usual linear head, on the same encoders, labels and epochs.

``SemiSupRKMReadout`` has nothing to train: it solves for the scores of all nodes, and the encoder learns through the
solve. Every labelled node is scored as if its own label were withheld, so that the loss does not reward memorising it;
the encoder still sees the labels, so dropout is needed as in any GNN.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, multi_margin_loss, normalize
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE
from tqdm import tqdm

from torch_gckm import SemiSupRKMReadout
from torch_gckm.datasets import PerClassSplit, load

ENCODERS = {"GCN": GCN, "GAT": GAT, "GraphSAGE": GraphSAGE}
LOSSES: dict[str, Callable[..., Tensor]] = {"cross-entropy": cross_entropy, "hinge": multi_margin_loss}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="or cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
parser.add_argument("--encoders", nargs="*", choices=ENCODERS, default=list(ENCODERS))
parser.add_argument("--loss", choices=LOSSES, default="cross-entropy", help="on the withheld scores")
parser.add_argument("--labels-per-class", type=int, default=4)
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--draws", type=int, default=3, help="random choices of the labels")
parser.add_argument("--quick", action="store_true", help="few epochs and one draw")
parser.add_argument("--no-progress", action="store_true", help="no progress bar")
args = parser.parse_args()
if args.quick:
    args.epochs, args.draws = 2, 1


def train(encoder: torch.nn.Module, data: Data, loss: Callable[[Tensor], Tensor]) -> Tensor:
    """What the trained encoder makes of all nodes."""
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in tqdm(range(args.epochs), disable=args.no_progress, unit="epoch", leave=False):
        optimizer.zero_grad()
        loss(encoder.train()(data.x, data.edge_index)).backward()
        optimizer.step()
    with torch.no_grad():
        embedding: Tensor = encoder.eval()(data.x, data.edge_index)
    return embedding


def with_linear_head(kind: str, data: Data, classes: int) -> Tensor:
    """Classes by the encoder as PyG's users know it."""
    encoder = ENCODERS[kind](data.num_features, 64, num_layers=2, out_channels=classes, dropout=0.5)
    labels = data.y[data.train_mask]
    return train(encoder, data, lambda out: cross_entropy(out[data.train_mask], labels)).argmax(dim=1)


def with_readout(kind: str, data: Data, classes: int) -> Tensor:
    """Classes by the readout on top of the encoder; rows of unit length leave no node far from all others."""
    encoder = ENCODERS[kind](data.num_features, 64, num_layers=2, out_channels=16, dropout=0.5)
    readout = SemiSupRKMReadout(16, classes, kernel="rbf", lambda2=0.1)  # The bandwidth follows the embedding.

    def loss(embedding: Tensor) -> Tensor:
        readout(normalize(embedding), data.y, data.train_mask)
        return LOSSES[args.loss](readout.leave_one_out(), data.y[data.train_mask])

    embedding = normalize(train(encoder, data, loss))
    with torch.no_grad():
        return readout.predict(readout(embedding, data.y, data.train_mask))


print(f"{args.dataset}, {args.labels_per_class} labels per class, unlabelled nodes right")
for kind in args.encoders:
    found = []
    for draw in range(args.draws):
        data = load(args.dataset, args.root, transform=PerClassSplit(args.labels_per_class, seed=draw))
        classes, unlabelled = int(data.y.max()) + 1, ~data.train_mask
        for head in (with_linear_head, with_readout):
            torch.manual_seed(draw)
            found.append(100 * float((head(kind, data, classes) == data.y)[unlabelled].float().mean()))
    pairs = torch.tensor(found).view(-1, 2)
    linear, readout = pairs.mean(dim=0).tolist()
    better = int((pairs[:, 1] > pairs[:, 0]).sum())
    print(f"{kind}: linear head {linear:.1f} %, readout {readout:.1f} % (better in {better} of {args.draws} draws)")
