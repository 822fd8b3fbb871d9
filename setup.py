"""Package metadata and extras; build system and tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "torch_gckm" / "_version.py").read_text()).group(1)

extras = {
    "sparse": ["torch-scatter", "torch-sparse"],  # Both are built from source.
    "datasets": ["ogb"],
    "sklearn": ["scikit-learn>=1.6"],
    "tables": ["pandas>=2.2", "pyarrow"],
    "report": ["bokeh>=3.6"],
    "plot": ["matplotlib>=3.8"],
    "tune": ["optuna>=4"],
    "docs": ["sphinx>=8", "myst-nb", "furo", "sphinx-design", "sphinx-copybutton", "latex2mathml"],
}
extras["app"] = [*extras["sklearn"], *extras["tables"], *extras["report"]]  # All that the command line needs.
extras["test"] = [
    "pytest>=8",
    "pytest-xdist",
    "hypothesis",
    "ruff",
    "mypy",
    "build",
    "tabulate",
    "selenium",
    *extras["app"],
    *extras["plot"],
]
extras["test"] += [*extras["datasets"], *extras["tune"], "safetensors"]
# Without "sparse": a plain pip install cannot build its packages.
extras["all"] = sorted({package for name, packages in extras.items() if name != "sparse" for package in packages})

setup(
    name="torch_gckm",
    version=version,
    description="Deep graph convolutional kernel machines for PyTorch Geometric: node classification with few labels",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["torch_gckm", "torch_gckm.*"]),
    package_data={
        "torch_gckm": [
            "py.typed",
            "report/*.html",
            "report/*.css",
            "report/*.js",
            "label/*.html",
            "label/*.css",
            "label/*.js",
            "select/portfolio.jsonl",
        ]
    },
    install_requires=["torch>=2.6", "torch-geometric>=2.6", "numpy>=1.26", "scipy>=1.12", "tqdm", "psutil"],
    extras_require=extras,
    entry_points={"console_scripts": ["gckm = torch_gckm.cli:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
