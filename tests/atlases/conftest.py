"""A small atlas of made-up sentences, and the files of any atlas."""

from pathlib import Path

import pytest

import mha_core as mha

COUNT, SHARD = 30, 8


def files(folder: Path) -> dict[str, bytes]:
    """Every file of an atlas by its path in the folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """The folder of an atlas of `COUNT` sentences in shards of `SHARD`."""
    folder = tmp_path_factory.mktemp("atlases") / "small.atlas"
    mha.atlas("small", count=COUNT, shard=SHARD, h=2, d_model=64, out=folder)
    return folder
