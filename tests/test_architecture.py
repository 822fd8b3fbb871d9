"""Imports go one way, and rows meet in one module."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import torch_gckm
from torch_gckm import panels

PACKAGE = Path(torch_gckm.__file__).parent
BASE = {
    "errors", "blocks", "panels", "partition", "processes", "manifold", "layouts", "files", "memory", "neighbours",
    "row_files", "checkpoints", "progress", "_version",
}  # fmt: skip
MAY_IMPORT = {
    "kernels": set(),
    "datasets": {"graph"},
    "gram": {"kernels"},
    "graph": {"kernels"},
    "optim": set(),
    "tables": set(),
    "readout": {"kernels", "gram"},
    "nn": {"kernels", "gram", "graph", "readout"},
    "train": {"kernels", "graph", "nn", "optim", "readout"},
    "select": {"kernels", "gram", "graph", "nn", "readout", "train"},
    "estimators": {"kernels", "gram", "graph", "nn", "readout", "select", "tables", "train"},
    "plot": {"graph", "nn", "select", "train"},
    "report": {"graph", "nn", "plot", "readout", "select", "train"},
    "label": {"estimators", "graph", "readout", "select"},
    "cli": {"datasets", "estimators", "graph", "label", "nn", "plot", "report", "select", "tables", "train"},
}

OVER_ROWS = {
    name for name, f in inspect.getmembers(panels, inspect.isfunction) if "over" in inspect.signature(f).parameters
}
# Packages whose tensors have nodes as rows. Estimators, pictures and the command line work on what these return.
OVER_NODES = ("kernels", "optim", "gram", "graph", "readout", "nn", "train", "select")
REDUCTIONS = {
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "bincount", "count_nonzero", "cumsum", "max", "mean",
    "median", "min", "nonzero", "norm", "prod", "sort", "std", "sum", "topk", "unique", "var", "vector_norm",
}  # fmt: skip
# Functions that reduce something else than all nodes: what a block of rows contributes to a sum that panels.accumulate
# finishes; small matrices of channels, landmarks, labels or classes; exact matrices, which exist in one process only.
ALLOWED = {
    # What a block of rows contributes, or each row.
    "readout/solutions.py": {"leverage", "answer"},  # Products of labelled rows.
    "kernels/distance.py": {"total_variance"},
    "kernels/features.py": {"mean", "shared"},
    "kernels/storage.py": {"backward", "offset", "row_sum", "rows"},
    # What a process sends to which others, and what it says of its own rows.
    "graph/halo.py": {"__init__", "extended_sparse", "local_numbers", "sent_to_owners"},
    "select/portfolio.py": {"smoothness"},
    "gram/landmark_gram.py": {
        "bilinear",
        "_refactor",
        "sums",
        "_is_wide",
        "part",
        "centred_quadratic",
        "eigenvectors",
        "with_jitter",
    },
    "gram/pivoted_cholesky.py": {"pivoted_cholesky", "sums", "_root"},
    "graph/topology.py": {"part"},
    # Exact matrices.
    "kernels/discrete.py": {"__init__"},
    "gram/dense.py": {"top_eigenvectors"},
    # Channels, columns, landmarks, numbers that a caller lists.
    "manifold.py": {"orthogonality_error"},
    "graph/prepared.py": {"_inverse_spread"},
    "nn/extension.py": {"check_known"},
    "nn/layer_fit.py": {"_extend", "spectral_scale"},
    "nn/gckm.py": {"summary"},
    "nn/layer_function.py": {"_are_alike"},  # Features know their mean.
    "nn/kernel_layers.py": {"is_fitted_on", "is_initialized"},
    "train/labelling.py": {"_chosen"},
    # Labels and classes.
    "readout/problem.py": {"part"},
    "readout/leave_out.py": {
        "places_of",
        "_checked_places",
        "patterns",
        "withheld_in_groups",
        "withheld_one_by_one",
        "_completed",
    },
    "readout/values.py": {"_check_columns"},
    "readout/targets.py": {"balanced", "class_codes", "pick_mask"},
    "train/metrics.py": {"balanced_accuracy", "cosine_score", "effective_classes"},
    "select/class_prior.py": {"checked_prior", "offset_for"},
    "select/calibration.py": {"calibrate"},
    "select/ensemble.py": {"self_train_on"},
    "select/unlabelled.py": {"is_better_than_chance", "with_sure_nodes", "main_directions"},
    "select/unseen.py": {"chance_of", "parts", "unseen"},
    "select/withheld.py": {"groups_to_withhold", "labels_in", "withhold_labels"},
    # Settings of a search.
    "select/criteria.py": {"__init__", "_auto", "_below", "_standardised"},
}


# Calls that are not over the rows of all processes, and so name no partition.
OF_ONE_PROCESS = {
    # Exact matrices, prediction sets and suggestions, which are refused elsewhere.
    "gram/dense.py": {
        "bilinear", "_double_matrix", "_block_bilinear", "_refuse_asymmetric", "top_eigenvectors", "_full",
        "centred_product",
    },
    "readout/conformal.py": {"p_values", "label_weights", "_exchangeable_weights"},
    "readout/updates.py": {"__init__"},
    "nn/extension.py": {"check_known"},
    "select/look_ahead.py": {"look_ahead"},
    "select/unlabelled.py": {"is_better_than_chance", "main_directions"},
    "train/labelling.py": {"_chosen"},
    # What each process says of its own rows; all raise its error.
    "graph/edges.py": {"canonical_edges"},
    "graph/weights.py": {"warn_of_unusable"},
    "graph/topology.py": {"_row_hashes", "_check_degrees", "_check_targets"},
    "kernels/discrete.py": {"__init__", "_numbers"},
    "kernels/inner.py": {"_inverse_norm"},
    "nn/semi_sup_rkm.py": {"_checked"},
    "readout/solutions.py": {"_apply", "lu_unless_singular"},
    "nn/gckm_conv.py": {"_places"},
    "readout/targets.py": {"parse", "pick_mask"},
    "readout/values.py": {"parse", "_check_columns", "known_entries"},
    "select/several_labels.py": {"labels_as_values"},
    # Labelled nodes and small matrices, which all processes have.
    "readout/leave_out.py": {"one_at_a_time", "in_groups", "patterns"},
    "nn/readout_fit.py": {"known_entries"},
    "select/criteria.py": {"__init__"},
    "select/calibration.py": {"agreement_of"},
    "select/ensemble.py": {"suggestions", "_calibrate", "_withheld", "_machines"},
    "select/unseen.py": {"chance_of", "combined", "parts", "ranked_by", "unseen"},
    "select/value_ensemble.py": {"__init__"},
    "select/values.py": {"explained", "means_of_others"},
    "select/withheld.py": {
        "check_well_posed", "groups_to_withhold", "means_of_groups", "scores_to_keep", "accuracy", "withhold_labels",
    },
    "train/metrics.py": {"roc_auc"},
}  # fmt: skip


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch_gckm."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "torch_gckm":
            names |= {alias.name for alias in node.names} & (BASE | set(MAY_IMPORT))
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("torch_gckm.") for alias in node.names), path
    return names


def reductions(tree: ast.AST, function: str = "") -> Iterator[tuple[str, int, str]]:
    """The function, line and name of every reduction that may go over rows, and of products that contract them."""
    for node in ast.iter_child_nodes(tree):
        inner = f"{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS:
            owner = node.func.value
            from_module = isinstance(owner, ast.Name) and owner.id in ("panels", "np", "math")
            along_columns = any(
                keyword.arg in ("dim", "axis")
                and isinstance(keyword.value, ast.Constant)
                and keyword.value.value in (1, 2)
                for keyword in node.keywords
            )
            if not (from_module or along_columns):
                yield inner, node.lineno, node.func.attr
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and _is_transposed(node.left):
            yield inner, node.lineno, "transposed product"
        yield from reductions(node, inner)


def _is_transposed(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("t", "transpose")


def test_imports_go_one_way():
    packages = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)
    for package, allowed in MAY_IMPORT.items():
        for path in (PACKAGE / package).glob("*.py"):
            assert imported_packages(path) <= {package} | allowed | BASE, path


def test_base_modules_know_only_each_other():
    for name in BASE:
        assert imported_packages(PACKAGE / f"{name}.py") <= BASE


def test_rows_meet_in_panels_only():
    found = {
        (path.relative_to(PACKAGE).as_posix(), function, name, line)
        for path in (
            PACKAGE / "manifold.py",
            *(path for folder in OVER_NODES for path in (PACKAGE / folder).glob("*.py")),
        )
        for function, line, name in reductions(ast.parse(path.read_text()))
    }
    strangers = [entry for entry in sorted(found) if entry[1] not in ALLOWED.get(entry[0], set())]
    assert not strangers, "use torch_gckm.panels, or say here why these are not sums over nodes"
    stale = {(file, name) for file, names in ALLOWED.items() for name in names} - {entry[:2] for entry in found}
    assert not stale


def without_partition(tree: ast.AST, function: str = "") -> Iterator[tuple[str, int, str]]:
    """The function, line and name of every call into panels that says nothing of which rows these are."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OVER_ROWS:
            owner, given = node.func.value, [*node.args, *(keyword.value for keyword in node.keywords)]
            names = {ast.unparse(argument).split(".")[-1] for argument in given}
            if isinstance(owner, ast.Name) and owner.id == "panels" and not names & {"over", "partition"}:
                yield inner, node.lineno, node.func.attr
        yield from without_partition(node, inner)


def test_calls_say_over_which_rows_they_are():
    """A sum over the rows of one process would be wrong without a word."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), function, name, line)
        for path in (
            *PACKAGE.glob("*.py"),
            *(path for folder in OVER_NODES for path in (PACKAGE / folder).glob("*.py")),
        )
        for function, line, name in without_partition(ast.parse(path.read_text()))
        if path.name != "testing.py"
    }
    strangers = [entry for entry in sorted(found) if entry[1] not in OF_ONE_PROCESS.get(entry[0], set())]
    assert not strangers, "pass the partition of the rows"
    stale = {(file, name) for file, names in OF_ONE_PROCESS.items() for name in names} - {entry[:2] for entry in found}
    assert not stale


def test_the_check_sees_reductions():
    code = "def f(x):\n    return x.sum(), x.mean(dim=0), x.sum(dim=1), x.t() @ x, x @ x.t(), panels.total(x)\n"
    assert [(name, what) for name, _, what in reductions(ast.parse(code))] == [
        ("f", "sum"), ("f", "mean"), ("f", "transposed product"),
    ]  # fmt: skip


def test_files_are_short_and_the_graph_of_the_last_call_is_remembered_once():
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert max(lengths.values()) <= 300, max(lengths, key=lengths.__getitem__)
    uses = [path for path in lengths if "RememberedGraph()" in path.read_text()]
    assert {path.name for path in uses} == {"remembered.py", "gckm_conv.py"}


def test_public_names():
    for name in ("GCKM", "GCKMConv", "SemiSupRKMReadout", "CayleyAdam", "Trainer", "__version__"):
        assert hasattr(torch_gckm, name)
