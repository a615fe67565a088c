"""A folder in the layout of Hugging Face, `config.json` and safetensors, as a checkpoint of its family."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stages.engine.models.families.catalog import FAMILIES
from stages.engine.models.families.family import REWARD_HEAD, Family
from stages.engine.models.families.fields import Fields
from stages.engine.models.weights.cast import copy_values
from stages.engine.models.weights.checkpoint import Checkpoint, Piece, make_pieces, weight_names
from stages.engine.models.weights.safetensors_file import DTYPES, SafetensorsFile, open_safetensors
from stages.errors import UserError

CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE = "config.json", "model.safetensors", "model.safetensors.index.json"
EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
ROTARY = "rotary_emb.inv_freq"
"""End of the names of tensors that are computed from the config and no weights; old files have them."""

COMPARED_BYTES = 1 << 20
"""At a time, so that a comparison of large tensors takes no memory."""

TEXT_PREFIXES = {"language_model.": "", "model.language_model.": "model."}
"""How the text part of a model of text and images is named, in older and newer files."""
IMAGE_PREFIXES = tuple(
    f"{head}{part}." for head in ("", "model.") for part in ("vision_tower", "multi_modal_projector")
)


class Stored(NamedTuple):
    """A tensor in one of the files."""

    file: SafetensorsFile
    name: str

    @property
    def dtype(self) -> str:
        return self.file.tensors[self.name].dtype


def open_hf(folder: Path) -> Checkpoint:
    """What a folder holds.

    Raises:
        UserError: a file is missing or damaged (all are named), or the config is not understood.
    """
    paths = _weight_files(folder)
    family, config, text_part = _read_config(folder / CONFIG_FILE)
    try:
        arch = family.from_hf(Fields(config))
    except ValueError as error:
        raise UserError(f"{folder / CONFIG_FILE}: {error}") from error
    files = _open_all(folder, paths)
    stored = {_text_name(name): Stored(file, name) for file in files for name in file.tensors if _is_weight(name)}
    problems = [*_duplicates(files)]
    if arch.tied_embeddings and OUTPUT in stored:
        problems += _untied(stored, stored.pop(OUTPUT))
    if REWARD_HEAD.hf in stored:
        # It has no output projection, so that none is read or made.
        arch = replace(arch, tied_embeddings=True)
    pieces = {weight.path: make_pieces(weight.path, weight.hf, arch) for weight in weight_names(family, arch)}
    wanted = {REWARD_HEAD.hf, *(piece.name for each in pieces.values() for piece in each)}
    problems += [
        f"{name} is of type {tensor.dtype}; supported are {', '.join(DTYPES)}: convert it"
        for name, tensor in stored.items()
        if name in wanted and tensor.dtype not in DTYPES
    ]

    def read(piece: Piece, rows: slice, out: np.ndarray) -> None:
        tensor = stored[piece.name]
        copy_values(tensor.file.rows(tensor.name, rows), out)

    shapes = {name: tensor.file.tensors[tensor.name].shape for name, tensor in stored.items()}
    head = shapes.pop(REWARD_HEAD.hf, None)
    return Checkpoint(folder, family, arch, shapes, pieces, read, problems, text_part, head)


def _weight_files(folder: Path) -> list[Path]:
    """Those that the index names; without one the usual file, or else all."""
    index = folder / INDEX_FILE
    if index.is_file():
        places = _read_object(index).get("weight_map")
        if not isinstance(places, dict):
            raise UserError(f"{index}: weight_map is missing, or no object of file names by tensor")
        names = sorted(set(map(str, places.values())))
        # What lies elsewhere is in no digest of the folder.
        if outside := [name for name in names if Path(name).name != name]:
            raise UserError(f"{index}: weight_map names {', '.join(outside)}; expected files beside it")
        return [folder / name for name in names]
    usual = folder / WEIGHTS_FILE
    files = [usual] if usual.is_file() else sorted(folder.glob("*.safetensors"))
    if not files or not (folder / CONFIG_FILE).is_file():
        raise UserError(f"{folder}: expected a .gguf file, or a folder with config.json and *.safetensors")
    return files


def _read_config(path: Path) -> tuple[Family, Mapping[str, object], bool]:
    """The family, its entries, and whether they are those of a text part."""
    config = _read_object(path)
    kind, quantised = config.get("model_type"), config.get("quantization_config")
    text_part = kind == "gemma3"
    if text_part:
        text = config.get("text_config")
        kind, config = "gemma3_text", text if isinstance(text, dict) else {}
    family = FAMILIES.get(str(kind))
    if family is None:
        raise UserError(f"{path}: model_type {kind!r} is not supported; supported are {', '.join(FAMILIES)}")
    if isinstance(quantised, dict):
        how = quantised.get("quant_method", "a method that it does not name")
        raise UserError(f"{path}: weights are quantised by {how}; take the model's plain files, or a .gguf file")
    return family, config, text_part


def _read_object(path: Path) -> Mapping[str, object]:
    try:
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path.parent}: {path.name} holds no object")
    return value


def _open_all(folder: Path, paths: list[Path]) -> list[SafetensorsFile]:
    files, problems = list[SafetensorsFile](), list[str]()
    for path in paths:
        if not path.is_file():
            problems.append(f"{folder / INDEX_FILE} names {path.name}, which is not there; fetch it")
            continue
        try:
            files.append(open_safetensors(path))
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("; ".join(problems))
    return files


def _is_weight(name: str) -> bool:
    return not name.endswith(ROTARY) and not name.startswith(IMAGE_PREFIXES)


def _text_name(name: str) -> str:
    for prefix, own in TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name


def _duplicates(files: list[SafetensorsFile]) -> Iterator[str]:
    counts = Counter(_text_name(name) for file in files for name in file.tensors)
    for name in (name for name, count in counts.items() if count > 1):
        holders = [file.path.name for file in files if name in map(_text_name, file.tensors)]
        yield f"{name} is stored more than once, in {' and '.join(holders)}"


def _untied(stored: Mapping[str, Stored], output: Stored) -> Iterator[str]:
    """Files may hold the embedding again as output projection; another one would be left out in silence."""
    embedding = stored.get(EMBEDDING)
    if embedding is None:
        return
    one, other = (tensor.file.raw(tensor.name) for tensor in (embedding, output))
    pieces = range(0, max(len(one), len(other)), COMPARED_BYTES)
    if embedding.dtype != output.dtype or any(
        not np.array_equal(one[start : start + COMPARED_BYTES], other[start : start + COMPARED_BYTES])
        for start in pieces
    ):
        yield f"tie_word_embeddings is true, but {OUTPUT} is not {EMBEDDING}: set it to false, or leave {OUTPUT} out"
