"""Model artifacts in and out: a base from its source, under the adapter of an earlier stage."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from stages.contract import ARTIFACT_FILE, Adapter, ExternalInput, ModelArtifact, SourceRef, StageContext
from stages.engine.data.chat import Chat
from stages.engine.data.gguf import open_gguf
from stages.engine.data.gguf_tokenizer import tokenizer_from_gguf
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.models.config import LoraConfig
from stages.engine.models.lora import Frozen, Weights, attach_lora, load_adapter, save_adapter, split
from stages.engine.models.weights.load import load_decoder
from stages.errors import UserError


@dataclass(frozen=True)
class LoadedModel:
    """A model input, ready to run.

    Attributes:
        base: where the base came from.
        frozen: structure and base weights.
        adapter: its trained part, empty for a bare base that nothing is trained on.
        chat: its tokenizer and chat template.
        max_positions: longest context that it was trained for.
    """

    base: SourceRef
    frozen: Frozen
    adapter: Weights
    chat: Chat
    max_positions: int


def load_model(context: StageContext, name: str = "model") -> LoadedModel:
    """Loads an input as it is, for sampling and scoring."""
    artifact, folder = _describe(context, name)
    if artifact.adapter is None:
        return _load(context, artifact, None, None)
    return _load(context, artifact, _lora_of(artifact.adapter), folder / artifact.adapter.file)


def load_trained_model(context: StageContext, lora: LoraConfig, seed: int, name: str = "model") -> LoadedModel:
    """Loads an input to be trained: its adapter goes on, or a fresh one starts.

    Raises:
        UserError: the input's adapter was trained with other settings.
    """
    artifact, folder = _describe(context, name)
    if artifact.adapter is None:
        return _load(context, artifact, lora, None, seed)
    found = _lora_of(artifact.adapter)
    if found != lora:
        raise UserError(
            f"input `{name}` has an adapter with {_words(found)}; model.lora asks for {_words(lora)}. "
            "Use the same section in both stages, or start from a base without an adapter"
        )
    return _load(context, artifact, lora, folder / artifact.adapter.file, seed)


def check_length(model: LoadedModel, num_tokens: int) -> None:
    """Checks that the longest prompt and response together are within what the model was trained for.

    Raises:
        UserError: they are longer; positions beyond give no error by themselves, only bad responses.
    """
    if num_tokens > model.max_positions:
        raise UserError(
            f"{model.base.uri}: the longest prompt and response take {num_tokens} tokens, more than the "
            f"{model.max_positions} of the model's context; shorten the responses or the prompts"
        )


def write_model(folder: Path, base: SourceRef, adapter: Weights, lora: LoraConfig) -> None:
    """Writes an adapter over its base as a model output; equal weights give equal bytes."""
    artifact = ModelArtifact(base=base, adapter=save_adapter(folder, adapter, lora))
    (folder / ARTIFACT_FILE).write_text(artifact.model_dump_json())


def _describe(context: StageContext, name: str) -> tuple[ModelArtifact, Path]:
    given = context.input(name)
    if isinstance(given, ExternalInput):
        return ModelArtifact(base=given.source), context.scratch
    folder = context.input_dir(name)
    try:
        return ModelArtifact.model_validate_json((folder / ARTIFACT_FILE).read_bytes()), folder
    except (OSError, ValidationError) as error:
        raise UserError(f"input `{name}`: {folder} holds no model: {error}") from error


def _words(lora: LoraConfig) -> str:
    return f"rank {lora.rank}, alpha {lora.alpha:g} on {', '.join(lora.targets)}"


def _lora_of(adapter: Adapter) -> LoraConfig:
    return LoraConfig.model_validate_json(adapter.model_dump_json(exclude={"file", "quantization"}))


def _load(
    context: StageContext, artifact: ModelArtifact, lora: LoraConfig | None, adapter_file: Path | None, seed: int = 0
) -> LoadedModel:
    path = context.source_path(artifact.base)
    chat = Chat(_tokenizer(path))
    model = load_decoder(path)
    if lora is not None:
        attach_lora(model, lora, seed)
    frozen, adapter = split(model)
    if adapter_file is not None:
        adapter = load_adapter(adapter_file, adapter)
    return LoadedModel(artifact.base, frozen, adapter, chat, model.arch.max_positions)


def _tokenizer(path: Path) -> Tokenizer:
    if path.suffix == ".gguf":
        return tokenizer_from_gguf(open_gguf(path).metadata, str(path))
    return load_tokenizer(path)
