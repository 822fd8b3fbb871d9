"""Find the ten digits without a single label: k-means on embeddings that kernel PCA makes of neighbourhoods."""

import argparse

import torch
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from torch_gckm import GCKM
from torch_gckm.datasets import load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="or cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--channels", type=int, nargs="*", default=[64, 10], help="embedding dimensions of the layers")
parser.add_argument("--quick", action="store_true", help="fewer restarts of k-means")
parser.add_argument("--no-progress", action="store_true", help="accepted by all examples; there is no progress bar")
args = parser.parse_args()

data = load(args.dataset)
classes = int(data.y.max()) + 1
model = GCKM(data.num_features, args.channels, classes)
with torch.no_grad():
    model.initialize(data, fine_tune=False)

restarts = 2 if args.quick else 10
views = {"the features": data.x.to_dense()}
views |= {f"layer {number}": conv.h.detach() for number, conv in enumerate(model.layers, start=1)}
print(f"{args.dataset}: agreement of {classes} clusters with the classes, normalised mutual information")
for name, view in views.items():
    clusters = KMeans(classes, n_init=restarts, random_state=0).fit_predict(view.numpy())
    print(f"k-means on {name:<14}{100 * normalized_mutual_info_score(data.y.numpy(), clusters):>6.1f} %")
