"""The masks of the paper's experiments: files of its authors, downloaded where there is a network, and checked."""

import hashlib
import io
import os
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torch_gckm.errors import InvalidInputError, MissingDataError
from torch_gckm.files import write_atomically

Split = Literal["few_labels", "few_labels_folds", "public", "val_1", "val_5", "val_10"]
REPOSITORY = "https://github.com/sonnyachten/GCKM"
# The commit that added the masks, so that later changes of the repository change no result.
ADDRESS = "https://raw.githubusercontent.com/sonnyachten/GCKM/24882955a4cb54be033c172fa0f7e57e36fa4f7b/masks"
TIMEOUT = 20.0  # Seconds without an answer.
_PUBLIC = {"train_mask": "train", "test_mask": "test"}
_FEW = {"test_mask": "fewlabels_test"}
# Which file has a mask of a split, by the middle of the file's name; a mask without one is empty.
_PARTS: dict[str, dict[str, str]] = {
    "few_labels": {**_FEW, "train_mask": "fewlabels_full_train"},
    "few_labels_folds": {**_FEW, "train_mask": "fewlabels_5fold_train", "val_mask": "fewlabels_5fold_val"},
    "public": {**_PUBLIC, "val_mask": "full_val"},
    **{f"val_{count}": {**_PUBLIC, "val_mask": f"{count}_val"} for count in (1, 5, 10)},
}
HASHES = {
    "chameleon_fewlabels_5fold_train": "a737ac153c9fa8d97416835d35f435e24de241ecc6f37911e51f61758c73782d",
    "chameleon_fewlabels_5fold_val": "cf6837efa9baa1c646b75bbb04caae221e1bb4f724d9997c3cd7549780bc5416",
    "chameleon_fewlabels_full_train": "b08d9684ce45ee593fe9388aff49ff61f1c9d18abc5e00339bd7a89e717c7028",
    "chameleon_fewlabels_test": "5b91cccf1582058f06a311c6e6e5bfe439792f7cf797bbf0a834d23b385f54ac",
    "citeseer_10_val": "ad5c3448fbbc68f0bc4b3471dcfe3a1ce9af30e28760fbd79823a007909b0bff",
    "citeseer_1_val": "366af004f3154d7c97a96559022145626de2d3dbcae27465379d72e58bed6fee",
    "citeseer_5_val": "4ddb6ef5d876dcfbad8e6925bb0ed7cd079b379be280d2247b408fc1588dd320",
    "citeseer_fewlabels_5fold_train": "0d439b820b25922e60401b57f69341a0f846c63bce5e31fdb4af08ec38e5b4a6",
    "citeseer_fewlabels_5fold_val": "af3c7f1726aa733811615c2d6deb307f759106c57d8eda0d7facbf7594ecff88",
    "citeseer_fewlabels_full_train": "8ab158b8b0743c8ebc1d34e76261b8fae729c847935b9f7cc64d451983f27c28",
    "citeseer_fewlabels_test": "5c9a96f5163abff7c2eba9402b7d7f42821fcb5fa57865df88a04adf73af6990",
    "citeseer_full_val": "cbe5d2e1ac0893cd42eb13977017c8cdc5efe6cab968ac6a460338390393d561",
    "citeseer_test": "3c0b412270b6e73b0f43f18f869994eb9f301e02141d282ec3f8962b05ce0db8",
    "citeseer_train": "a0cb1e4845150f579cb90d61de1ef11412526c116498d604787568c2a69575ae",
    "cora_10_val": "7b123c3367853d3c201dd9044ff62231835a7c4dfe717cab87a75b76a91fe176",
    "cora_1_val": "bf18ef7c7ec9ae2bb7f2c3c447d32e9bec87b6e7acc02d2a9fdda43ebb0a4430",
    "cora_5_val": "d145b6acf1d9bd80e55512b73d4890d5b4bf4c4e60a9e73b76d4054dedbae424",
    "cora_fewlabels_5fold_train": "08b232946618c96ccdf4bd52dd581ee60016206cf02d6264bd1c8a45ff36d632",
    "cora_fewlabels_5fold_val": "596317d5598c316abd4c215598aef34afbe6bb8abffee64fc8d2d5de37955da3",
    "cora_fewlabels_full_train": "1a03ba7be645fd33a6f8b2d6948acacddc3dfe2ee7fdc950c50c06b73980c48e",
    "cora_fewlabels_test": "8e2f593e72e424e99335364dc6b664b3ef330b97018d41c01f51630f7e595805",
    "cora_full_val": "40d066c717ecd530e3957f8580113ed977ee87eae890df99485980a5fa234bf8",
    "cora_test": "94e200f2015b358a311ca936c677be309f83eeec768a688c9cb6e35f6c6c9fe8",
    "cora_train": "3151759cb8cb812c3331bf2303faf50ba606a74fa581c8acb32feb7c00de9672",
    "pubmed_10_val": "51bd40fea51310fd6ccab38e62f46275360e2b68d711fa6f69f563e834ae4145",
    "pubmed_1_val": "ce9a02d51696d566fb98d7e399864c255776b4bec8e6a6665cbd067a92ea2d00",
    "pubmed_5_val": "088e0e5afe28e7ce2e426e07b85d2b1804f3fb2551657fdaa7b5957512d18dc0",
    "pubmed_fewlabels_5fold_train": "7a34c9afb4c0997d266e495258858fd08bd483997d925e9e09df924101759906",
    "pubmed_fewlabels_5fold_val": "8558d35555314b7d5f3f5b0d07dc7d9fd6e04b5557367f4ca953eef1320c85c8",
    "pubmed_fewlabels_full_train": "13e3b6384d3b1868c10add42d875231540fa77b68097214022e95b989ecf2d79",
    "pubmed_fewlabels_test": "9c7f9146a3805170eb2f52bba87d7ceb0bc538829bbda66f0e7f144a7fc3ed2e",
    "pubmed_full_val": "bf6cff62ebfb80796eb82b3b355ecdee5c507f7d24249a28f0cec4af3874bd9e",
    "pubmed_test": "b524366708414754f44c81ba71c18331ee1786759d5df9486755f80d7c3bd0cc",
    "pubmed_train": "7ff027b4eedb27fa059479259db49c95bae952a6c8a1dc800fbd17dca0ebe92c",
    "squirrel_fewlabels_5fold_train": "c569668a8d6ab855339260731f7f0a33ff8a1e52dbdbcc6de49a442ffc60bd63",
    "squirrel_fewlabels_5fold_val": "8368859ca0ab1783fad38fb0f66862560cbfe6b8ccf35d867089c022084bb38a",
    "squirrel_fewlabels_full_train": "36d31b58c8c019c2af1c1051aa960d58e447f348fefe6712a45aa109728849b3",
    "squirrel_fewlabels_test": "a85c567736e53c1c6e0676156c969d4dac80a8cd98a8bdb083abaa2cda3f3492",
}
"""The SHA-256 hash of every file, by its name without ``_mask.pt``."""


def data_root() -> Path | None:
    """The folder named by the environment variable ``GCKM_DATA_ROOT``, if it is set."""
    value = os.environ.get("GCKM_DATA_ROOT")
    return Path(value) if value else None


def paper_splits(
    name: str, split: Split = "few_labels", root: str | os.PathLike[str] | None = None
) -> dict[str, Tensor]:
    """The masks of one of the paper's splits.

    Files that are not in ``root/splits`` are downloaded from the authors' repository. Every file is compared with
    its SHA-256 hash before it is used, whether it was there or not.

    Args:
        name: ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"chameleon"`` or ``"squirrel"``.
        split: ``"few_labels"``: the labels of the paper's Table 2, and the same in five folds ``[n, 5]``
            (``"few_labels_folds"``). Cora, CiteSeer and PubMed also have ``"public"``, 20 training labels per class,
            and the same with 1, 5 or 10 validation labels per class (``"val_1"``, ``"val_5"``, ``"val_10"``).
        root: The folder of the datasets; by default the one named by ``GCKM_DATA_ROOT``, else ``data``.

    Returns:
        ``train_mask`` and ``test_mask``, and ``val_mask`` if the split has validation nodes.

    Raises:
        MissingDataError: A file is not there and cannot be downloaded.
        InvalidInputError: There is no such split, or a file is not the paper's.
    """
    name = name.lower()
    if split not in _PARTS:
        raise InvalidInputError(f"unknown split '{split}'; choose from {', '.join(_PARTS)}")
    parts = _PARTS[split]
    lacking = [f"{name}_{part}_mask.pt" for part in parts.values() if f"{name}_{part}" not in HASHES]
    if lacking:
        has = [kind for kind, files in _PARTS.items() if all(f"{name}_{part}" in HASHES for part in files.values())]
        hint = f"of {name} it has {', '.join(has)}" if has else f"it has none of {name}"
        raise InvalidInputError(f"the paper has no split '{split}' of {name} (no {lacking[0]}): {hint}")
    folder = (Path(root) if root is not None else data_root() or Path("data")) / "splits"
    masks = {mask: _mask(folder, f"{name}_{part}") for mask, part in parts.items()}
    return {mask: (tensor.t().contiguous() if tensor.dim() == 2 else tensor) for mask, tensor in masks.items()}


def _mask(folder: Path, key: str) -> Tensor:
    path = folder / f"{key}_mask.pt"
    is_there = path.exists()
    content = path.read_bytes() if is_there else _downloaded(path)
    found = hashlib.sha256(content).hexdigest()
    if found != HASHES[key]:
        source = f"{path}" if is_there else f"{ADDRESS}/{path.name}"
        what = "remove it, or set GCKM_DATA_ROOT to another folder" if is_there else by_hand(path)
        raise InvalidInputError(
            f"{source} is not the paper's file: its SHA-256 hash is {found}, not {HASHES[key]}; {what}"
        )
    if not is_there:
        write_atomically(path, lambda file: file.write(content))
    mask: Tensor = torch.load(io.BytesIO(content), weights_only=True)
    return mask


def _downloaded(path: Path) -> bytes:
    address = f"{ADDRESS}/{path.name}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:  # No network, no such file, no answer, half of one.
        reason = getattr(error, "reason", error)
        raise MissingDataError(
            f"{path} is not there, and {address} cannot be read ({reason}); {by_hand(path)}"
        ) from error
    return content


def by_hand(path: Path) -> str:
    """What to do where there is no network."""
    return (
        f"copy the folder 'masks' of {REPOSITORY} to {path.parent} from a machine with a network, or set "
        "GCKM_DATA_ROOT to a folder whose 'splits' holds these files"
    )
