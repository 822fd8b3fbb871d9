"""Imports go one way."""

import ast
from pathlib import Path

import torch_gckm

PACKAGE = Path(torch_gckm.__file__).parent
BASE = {"errors", "numerics", "cache", "files", "neighbours", "_version"}
MAY_IMPORT = {
    "kernels": set(),
    "manifold": set(),
    "datasets": set(),
    "gram": {"kernels"},
    "optim": {"manifold"},
    "nn": {"kernels", "gram", "manifold"},
    "train": {"kernels", "nn", "optim", "manifold"},
    "select": {"kernels", "gram", "nn", "train"},
    "estimators": {"kernels", "gram", "nn", "select", "train"},
    "plot": {"nn", "select", "train"},
    "report": {"nn", "plot", "select", "train"},
    "cli": {"kernels", "datasets", "estimators", "nn", "plot", "report", "select"},
}


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch_gckm."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("torch_gckm.") for alias in node.names), path
    return names


def test_imports_go_one_way():
    packages = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)
    for package, allowed in MAY_IMPORT.items():
        for path in (PACKAGE / package).glob("*.py"):
            assert imported_packages(path) <= {package} | allowed | BASE, path


def test_base_modules_know_only_each_other():
    for name in BASE:
        assert imported_packages(PACKAGE / f"{name}.py") <= BASE


def test_public_names():
    for name in ("GCKM", "GCKMConv", "SemiSupRKMReadout", "CayleyAdam", "Trainer", "__version__"):
        assert hasattr(torch_gckm, name)
