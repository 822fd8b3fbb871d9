"""All experiments, in the order of the page of results."""

from __future__ import annotations

from experiments.ablation import Ablation
from experiments.arxiv import Arxiv
from experiments.attention import Attention
from experiments.calibration import Calibration
from experiments.clustering import Clustering
from experiments.common import Experiment
from experiments.coverage import Coverage
from experiments.criteria import Criteria
from experiments.customers import Customers
from experiments.depth import Depth
from experiments.directed import Directed
from experiments.facts import Progress, Sparsity, Statistics
from experiments.few_labels import FewLabels
from experiments.inductive import Inductive
from experiments.inference import Inference
from experiments.policies import Policies
from experiments.processes import Processes
from experiments.qualitative import Qualitative
from experiments.regression import Regression
from experiments.scale import Scale
from experiments.selection import Selection
from experiments.self_training import SelfTraining
from experiments.speed import Speed
from experiments.standard import Standard
from experiments.subset import Subset
from experiments.suggest import Suggest
from experiments.table2 import Table2
from experiments.table3 import Table3

KINDS: tuple[type[Experiment], ...] = (
    FewLabels, Speed, Policies, Scale, Arxiv, Inference, Processes, Table2, Table3, Standard, Depth, Ablation,
    Clustering, Inductive, Subset, Directed, Attention, Sparsity, Progress, Qualitative, Statistics, Calibration,
    Coverage, Suggest, Regression, Customers, Criteria, Selection, SelfTraining,
)  # fmt: skip
EXPERIMENTS: dict[str, type[Experiment]] = {kind.name: kind for kind in KINDS}
