"""The numbers of the paper's tables, as printed: accuracies in percent, with half widths of 95 % intervals."""

Cell = tuple[float, float] | float
Column = dict[str, Cell]

# Few labels, no validation set.
TABLE2: dict[str, Column] = {
    "chameleon": {
        "SVM-RBF": 29.37, "SVM-DIFF": 27.95, "SVM-WWL": 27.73, "MLP": (22.20, 1.22), "GCN": (25.09, 3.05),
        "APPNP": (25.07, 2.50), "GPR-GNN": (29.58, 3.06), "BernNet": (29.17, 3.07), "ChebNetII": (30.07, 0.83),
        "GCKM": 30.17, "GCKM-MV": 38.15,
    },
    "squirrel": {
        "SVM-RBF": 29.09, "SVM-DIFF": 19.89, "SVM-WWL": 28.37, "MLP": (23.50, 2.33), "GCN": (23.22, 2.37),
        "APPNP": (22.59, 2.29), "GPR-GNN": (24.93, 3.57), "BernNet": (24.59, 2.59), "ChebNetII": (24.58, 2.50),
        "GCKM": 25.38, "GCKM-MV": 29.11,
    },
    "cora": {
        "SVM-RBF": 38.84, "SVM-DIFF": 75.50, "SVM-WWL": 44.34, "MLP": (40.95, 1.47), "GCN": (76.70, 3.41),
        "APPNP": (80.06, 0.45), "GPR-GNN": (80.16, 0.66), "BernNet": (80.68, 0.62), "ChebNetII": (78.86, 0.55),
        "GCKM": 80.74, "GCKM-MV": 81.05,
    },
    "citeseer": {
        "SVM-RBF": 33.94, "SVM-DIFF": 47.96, "SVM-WWL": 39.12, "MLP": (50.05, 1.38), "GCN": (64.29, 0.96),
        "APPNP": (66.46, 0.92), "GPR-GNN": (64.58, 1.27), "BernNet": (64.88, 1.03), "ChebNetII": (67.26, 0.68),
        "GCKM": 67.53, "GCKM-MV": 68.44,
    },
    "pubmed": {
        "SVM-RBF": 62.23, "SVM-DIFF": 39.19, "SVM-WWL": 71.87, "MLP": (68.65, 0.59), "GCN": (76.68, 0.36),
        "APPNP": (77.18, 0.46), "GPR-GNN": (76.95, 2.96), "BernNet": (77.51, 0.33), "ChebNetII": (74.84, 0.76),
        "GCKM": 75.99, "GCKM-MV": 75.32,
    },
}  # fmt: skip

# Public splits; by the number of validation labels per class.
TABLE3: dict[str, dict[str, dict[int, Cell]]] = {
    "cora": {
        "GCN": {1: (81.18, 0.66), 5: (79.50, 0.56), 10: (80.51, 0.25)},
        "ChebNetII": {1: (60.15, 2.13), 5: (77.67, 1.03), 10: (79.79, 1.07)},
        "GCKM": {0: 82.40, 1: 82.40, 5: 82.40, 10: 81.90},
    },
    "citeseer": {
        "GCN": {1: (63.91, 0.95), 5: (67.71, 1.30), 10: (69.22, 1.07)},
        "ChebNetII": {1: (51.52, 4.40), 5: (67.72, 1.06), 10: (68.13, 1.14)},
        "GCKM": {0: 68.10, 1: 68.10, 5: 68.10, 10: 68.10},
    },
    "pubmed": {
        "GCN": {1: (75.43, 0.41), 5: (76.42, 0.79), 10: (74.52, 0.53)},
        "ChebNetII": {1: (63.31, 2.30), 5: (76.79, 0.95), 10: (71.65, 0.70)},
        "GCKM": {0: 76.80, 1: 76.60, 5: 76.60, 10: 76.80},
    },
}

STANDARD: dict[str, Column] = {
    "chameleon": {
        "MLP": (21.91, 2.11), "GCN": (39.14, 0.60), "APPNP": (30.06, 0.96), "GPR-GNN": (30.56, 0.94),
        "BernNet": (26.35, 1.04), "ChebNetII": (46.45, 0.53), "GCKM": 41.16,
    },
    "squirrel": {
        "MLP": (23.42, 0.94), "GCN": (30.06, 0.75), "APPNP": (25.18, 0.35), "GPR-GNN": (25.11, 0.51),
        "BernNet": (24.57, 0.72), "ChebNetII": (36.18, 0.46), "GCKM": 30.10,
    },
    "cora": {
        "MLP": (58.88, 0.62), "GCN": (81.32, 0.18), "APPNP": (83.52, 0.24), "GPR-GNN": (83.95, 0.22),
        "BernNet": (83.15, 0.32), "ChebNetII": (83.67, 0.33), "GCKM": 84.20,
    },
    "citeseer": {
        "MLP": (56.97, 0.54), "GCN": (71.77, 0.21), "APPNP": (72.09, 0.25), "GPR-GNN": (70.92, 0.57),
        "BernNet": (72.24, 0.25), "ChebNetII": (72.75, 0.16), "GCKM": 71.80,
    },
    "pubmed": {
        "MLP": (73.15, 0.28), "GCN": (79.15, 0.18), "APPNP": (80.23, 0.15), "GPR-GNN": (78.97, 0.27),
        "BernNet": (79.65, 0.25), "ChebNetII": (80.48, 0.23), "GCKM": 80.10,
    },
}  # fmt: skip

# Cora, few labels; by the number of layers.
DEPTH: dict[str, dict[int, float]] = {
    "GCN": {1: 63.60, 2: 76.70, 4: 74.86, 8: 70.37, 10: 72.69},
    "GCKM": {1: 72.09, 2: 80.74, 4: 80.27, 8: 80.31, 10: 79.84},
    "seconds": {1: 9.1, 2: 12.9, 4: 19.8, 8: 22.6, 10: 27.3},
}

# Normalised mutual information, in percent.
CLUSTERING: dict[str, Column] = {
    "cora": {"DMoN, 16 clusters": 48.8, "GCKM": 49.0},
    "citeseer": {"DMoN, 16 clusters": 33.7, "GCKM": 37.5},
    "pubmed": {"DMoN, 16 clusters": 29.8, "GCKM": 25.2},
    "chameleon": {"DMoN, 16 clusters": 14.0, "GCKM": 14.9},
    "squirrel": {"DMoN, 16 clusters": 3.7, "GCKM": 5.4},
}

ABLATION: dict[str, Column] = {
    "chameleon": {"Semi-SupRKM": 29.37, "GCKM-NoAggr": 33.67, "GCKM": 41.16},
    "squirrel": {"Semi-SupRKM": 29.09, "GCKM-NoAggr": 24.09, "GCKM": 30.10},
    "cora": {"Semi-SupRKM": 59.90, "GCKM-NoAggr": 46.10, "GCKM": 84.20},
    "citeseer": {"Semi-SupRKM": 67.60, "GCKM-NoAggr": 58.50, "GCKM": 71.80},
    "pubmed": {"Semi-SupRKM": 75.00, "GCKM-NoAggr": 67.80, "GCKM": 80.10},
}

# Nodes, edges, features, classes, class-insensitive edge homophily.
STATISTICS: dict[str, tuple[int, int, int, int, float]] = {
    "chameleon": (2277, 31371, 2325, 5, 0.041),
    "squirrel": (5201, 198353, 2089, 5, 0.031),
    "cora": (2708, 5278, 1433, 7, 0.766),
    "citeseer": (3327, 4552, 3703, 6, 0.627),
    "pubmed": (19717, 44324, 500, 3, 0.664),
    "ogbn-arxiv": (169343, 1157799, 128, 40, 0.421),
}
