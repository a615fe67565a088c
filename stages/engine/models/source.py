"""Model artifacts in and out: a base from its source, under the adapter of an earlier stage."""

from dataclasses import dataclass
from pathlib import Path

from stages.contract import ARTIFACT_FILE, Adapter, ModelArtifact, Quantization, SourceRef, StoredBase
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.data.chat import Chat
from stages.engine.models.axes import check_division, make_placement
from stages.engine.models.config import LoraConfig, TrainedModelConfig
from stages.engine.models.lora import Frozen, Weights, adapted_decoder, check_targets, load_adapter, save_adapter, split
from stages.engine.models.opened import OpenedModel
from stages.engine.models.quantise import converters
from stages.engine.models.weights.load import load_weights, read_weights
from stages.errors import UserError


@dataclass(frozen=True)
class LoadedModel:
    """A model input, ready to run.

    Attributes:
        opened: what it is made of.
        frozen: structure and base weights.
        adapter: its trained part, empty for a bare base that nothing is trained on.
        lora: settings of the adapter.
    """

    opened: OpenedModel
    frozen: Frozen
    adapter: Weights
    lora: LoraConfig | None

    @property
    def base(self) -> SourceRef | StoredBase:
        """What an adapter over these weights names as its base."""
        return self.opened.base

    @property
    def chat(self) -> Chat:
        """Its tokenizer and chat template; errors are those of `OpenedModel.chat`."""
        return self.opened.chat


def load_model(opened: OpenedModel) -> LoadedModel:
    """Loads a model as it is; errors are those of `read_weights` and `load_adapter`."""
    adapter = opened.artifact.adapter
    return _load(opened, *(None, None) if adapter is None else (lora_of(adapter), adapter.quantization))


def load_trained_model(
    opened: OpenedModel, config: TrainedModelConfig, seed: int, cluster: Cluster = ALONE
) -> LoadedModel:
    """Loads a model to be trained: its adapter goes on, or a fresh one starts.

    The base goes straight to the devices of the cluster, the adapter does not.

    Raises:
        UserError: its adapter was trained with other settings, or the base cannot be divided so; or as of `load_model`.
    """
    artifact = opened.artifact
    wanted = (config.lora, config.quantization)
    found = wanted if artifact.adapter is None else (lora_of(artifact.adapter), artifact.adapter.quantization)
    if _by_name(*found) != _by_name(*wanted):
        raise UserError(
            f"input `model` has an adapter with {_words(*found)}; `model` asks for {_words(*wanted)}. "
            "Use the same section in both stages, or start from a base without an adapter"
        )
    return _load(opened, *wanted, seed, cluster)


def check_length(opened: OpenedModel, num_tokens: int) -> None:
    """Checks that the longest prompt and response together are within what the model was trained for.

    Raises:
        UserError: they are longer; positions beyond give no error by themselves, only bad responses.
    """
    longest = opened.checkpoint.arch.max_positions
    if num_tokens > longest:
        raise UserError(
            f"{opened.checkpoint.path}: the longest prompt and response take {num_tokens} tokens, more than the "
            f"{longest} of the model's context; shorten the responses or the prompts"
        )


def write_model(folder: Path, base: SourceRef | StoredBase, adapter: Weights, config: TrainedModelConfig) -> None:
    """Writes an adapter over its base as a model output; equal weights give equal bytes."""
    artifact = ModelArtifact(base=base, adapter=save_adapter(folder, adapter, config.lora, config.quantization))
    (folder / ARTIFACT_FILE).write_text(artifact.model_dump_json())


def _by_name(lora: LoraConfig, how: Quantization | None) -> tuple[LoraConfig, Quantization | None]:
    """The same for settings that name the same layers in another order."""
    return lora.model_copy(update={"targets": tuple(sorted(lora.targets))}), how


def _words(lora: LoraConfig, how: Quantization | None) -> str:
    stabilised = ", rank-stabilized," if lora.scaling == "rank_stabilized" else ""
    over = f" over a base in {how.kind} with tiles of {how.tile_size}" if how else ""
    return f"rank {lora.rank}, alpha {lora.alpha:g}{stabilised} on {', '.join(lora.targets)}{over}"


def lora_of(adapter: Adapter) -> LoraConfig:
    """Settings that an adapter was trained with."""
    return LoraConfig.model_validate_json(adapter.model_dump_json(exclude={"file", "quantization"}))


def _load(
    opened: OpenedModel,
    lora: LoraConfig | None,
    quantization: Quantization | None,
    seed: int = 0,
    cluster: Cluster = ALONE,
) -> LoadedModel:
    arch, placement = opened.checkpoint.arch, make_placement(cluster)
    check_division(cluster, arch, quantization)
    if lora is None:
        model = load_weights(opened.checkpoint, placement=placement)
    else:
        check_targets(arch, lora)
        convert = converters(arch, quantization) if quantization else {}
        weights = read_weights(opened.checkpoint, placement=placement, convert=convert)
        model = adapted_decoder(arch, weights, lora, seed, quantization)
    frozen, adapter = split(model)
    if opened.artifact.adapter is not None:
        adapter = load_adapter(opened.folder / opened.artifact.adapter.file, adapter)
    return LoadedModel(opened, frozen, adapter, lora)
