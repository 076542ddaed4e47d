"""Options of the commands that work with a store, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from profkit.config import Config

StoreOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--store", "-s", help="Folder of the store; default: PROFKIT_STORE, profkit.toml, ./profkit-store."),
]
ConfigFileOption: TypeAlias = Annotated[
    Path | None, typer.Option("--config-file", help="A profkit.toml; default: the one in the current folder.")
]


def store_and_config(store: Path | None, config_file: Path | None) -> tuple[Path, Config]:
    """Where the store lies, and what ``profkit.toml`` says."""
    from profkit.config import find_config, store_path

    config = find_config(config_file)
    return store_path(store, config), config
