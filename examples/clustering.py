"""Find the ten digits without a single label; withheld features say how far to smooth over the graph."""

import argparse

from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from torch_gckm import GCKMClustering
from torch_gckm.datasets import load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--dataset", default="digits", help="or cora, citeseer, ...; PyG downloads what is not there")
parser.add_argument("--root", help="folder of the datasets (default: GCKM_DATA_ROOT, else data)")
parser.add_argument("--quick", action="store_true", help="fewer restarts of k-means")
parser.add_argument("--no-progress", action="store_true", help="accepted by all examples; there is no progress bar")
args = parser.parse_args()

data = load(args.dataset, args.root)
classes = int(data.y.max()) + 1
restarts = 2 if args.quick else 10
clustering = GCKMClustering(classes, n_init=restarts).fit(data)
found = {
    "k-means on the features": KMeans(classes, n_init=restarts, random_state=0).fit_predict(data.x.to_dense().numpy()),
    "GCKMClustering, 1 hop": GCKMClustering(classes, hops=1, n_init=restarts).fit_predict(data),
    f"GCKMClustering, {clustering.hops_} hops, as it chose": clustering.labels_,
}
print("What clusters explain of withheld features, by hops:")
print(", ".join(f"{hops}: {100 * share:.1f} %" for hops, share in clustering.explained_.items()))
print(f"{args.dataset}: agreement of {classes} clusters with the classes, normalised mutual information")
for name, clusters in found.items():
    print(f"{name:<42}{100 * normalized_mutual_info_score(data.y.numpy(), clusters):>6.1f} %")
