"""Model artifacts in and out: a base from its source, under the adapter of an earlier stage."""

from dataclasses import dataclass, replace
from pathlib import Path

from flax import nnx

from stages.contract import ARTIFACT_FILE, Adapter, ModelArtifact, Quantization, SourceRef, StoredBase
from stages.engine.cluster.mesh import ALONE, Cluster
from stages.engine.data.chat import Chat
from stages.engine.models.axes import check_division, make_placement
from stages.engine.models.config import LoraConfig, Precision, TrainedModelConfig
from stages.engine.models.lora import Frozen, Weights, adapted_decoder, check_targets, load_adapter, save_adapter, split
from stages.engine.models.opened import OpenedModel
from stages.engine.models.quantise import converters
from stages.engine.models.reward_head import load_head, part_head, save_head
from stages.engine.models.weights.load import load_weights, read_weights
from stages.engine.models.weights.save import save_hf
from stages.errors import UserError


@dataclass(frozen=True)
class LoadedModel:
    """A model input, ready to run.

    Attributes:
        opened: what it is made of.
        frozen: structure and base weights.
        trained: its trained part: an adapter, all weights, or nothing of a bare base that nothing is trained on. That
            of a reward model has its head too.
        lora: settings of the adapter, if there is one.
    """

    opened: OpenedModel
    frozen: Frozen
    trained: Weights
    lora: LoraConfig | None

    @property
    def base(self) -> SourceRef | StoredBase:
        """What an adapter over these weights names as its base."""
        return self.opened.base

    @property
    def chat(self) -> Chat:
        """Its tokenizer and chat template; errors are those of `OpenedModel.chat`."""
        return self.opened.chat


def load_model(opened: OpenedModel, cluster: Cluster = ALONE) -> LoadedModel:
    """Loads a model as it is; errors are those of `read_weights` and `load_adapter`."""
    adapter = opened.artifact.adapter
    how = (None, None) if adapter is None else (lora_of(adapter), adapter.quantization)
    return _load(opened, *how, cluster=cluster)


def load_trained_model(
    opened: OpenedModel, config: TrainedModelConfig, seed: int, cluster: Cluster = ALONE
) -> LoadedModel:
    """Loads a model to be trained: its adapter goes on, or a fresh one starts, or all its weights are trained.

    The weights go straight to the devices of the cluster, an adapter does not.

    Raises:
        UserError: its adapter was trained with other settings, or the base cannot be divided so; or as of `load_model`.
    """
    artifact = opened.artifact
    wanted = (config.lora, config.quantization)
    found = wanted if artifact.adapter is None else (lora_of(artifact.adapter), artifact.adapter.quantization)
    if _by_name(*found) != _by_name(*wanted):
        raise UserError(
            f"input `model` has an adapter with {_words(*found)}; `model` asks for {_words(*wanted)}. "
            "Use the same section in both stages, or start from a base without an adapter: `export` merges one into it"
        )
    opened = _computing_in(opened, config.precision)
    if config.lora is None:
        return _load_whole(opened, cluster)
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


def write_model(folder: Path, model: LoadedModel, trained: Weights, config: TrainedModelConfig) -> None:
    """Writes a model output: an adapter over its base, or a whole model in float32; equal weights give equal bytes.

    Args:
        folder: that exists.
        model: that was trained.
        trained: its trained part now.
        config: how it was trained.
    """
    opened = model.opened
    others, head = part_head(trained)
    if config.lora is None:
        checkpoint = opened.checkpoint
        save_hf(folder, checkpoint.family, checkpoint.arch, trained.items(), opened.tokenizer, reward=bool(head))
        artifact = ModelArtifact(base=opened.artifact.base, whole=True)
    else:
        adapter = save_adapter(folder, others, config.lora, config.quantization)
        artifact = ModelArtifact(base=model.base, adapter=adapter, head=save_head(folder, head))
    (folder / ARTIFACT_FILE).write_text(artifact.model_dump_json())


def _by_name(lora: LoraConfig | None, how: Quantization | None) -> tuple[LoraConfig | None, Quantization | None]:
    """The same for settings that name the same layers in another order."""
    return lora and lora.model_copy(update={"targets": tuple(sorted(lora.targets))}), how


def _words(lora: LoraConfig | None, how: Quantization | None) -> str:
    if lora is None:
        return "no adapter: `lora: null` trains all weights"
    stabilised = ", rank-stabilized," if lora.scaling == "rank_stabilized" else ""
    over = f" over a base in {how.kind} with tiles of {how.tile_size}" if how else ""
    return f"rank {lora.rank}, alpha {lora.alpha:g}{stabilised} on {', '.join(lora.targets)}{over}"


def lora_of(adapter: Adapter) -> LoraConfig:
    """Settings that an adapter was trained with."""
    return LoraConfig.model_validate_json(adapter.model_dump_json(exclude={"file", "quantization"}))


def _computing_in(opened: OpenedModel, precision: Precision) -> OpenedModel:
    arch = replace(opened.checkpoint.arch, compute_dtype=precision)
    return replace(opened, checkpoint=replace(opened.checkpoint, arch=arch))


def _load_whole(opened: OpenedModel, cluster: Cluster) -> LoadedModel:
    """A bare decoder, of which everything is trained."""
    check_division(cluster, opened.checkpoint.arch)
    model = load_weights(opened.checkpoint, placement=make_placement(cluster))
    frozen, weights = split(model, nnx.Param)
    return LoadedModel(opened, frozen, weights | load_head(opened), None)


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
        model = load_weights(opened.checkpoint, dtype=arch.compute_dtype, placement=placement)
    else:
        check_targets(arch, lora)
        convert = converters(arch, quantization) if quantization else {}
        checkpoint, dtype = opened.checkpoint, arch.compute_dtype
        weights = read_weights(checkpoint, dtype=dtype, placement=placement, convert=convert)
        model = adapted_decoder(arch, weights, lora, seed, quantization)
    frozen, adapter = split(model)
    if opened.artifact.adapter is not None:
        adapter = load_adapter(opened.folder / opened.artifact.adapter.file, adapter)
    return LoadedModel(opened, frozen, adapter | load_head(opened), lora)
