"""The same on four devices as on one; run by `test_on_four_devices.py`."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh_adapter import attach_lora
from jax.sharding import PartitionSpec
from stage_trial import TINY, StageTrial

from stages.contract import ProgressPoint, StageConfigBase
from stages.engine.checkpoints.store import ProgressWriter, restore_newest
from stages.engine.cluster.agreement import Agreement, agreed
from stages.engine.cluster.mesh import ALONE, AXES, Cluster, all_devices, divided
from stages.engine.cluster.placement import divide_rows, of_this_process, replicate
from stages.engine.data.batching import Group
from stages.engine.data.layout import Layout, choose_layout
from stages.engine.models.config import LoraConfig
from stages.engine.models.dropout import NumberedBatch, TokenNumbers
from stages.engine.models.lora import Frozen, Weights, split
from stages.engine.models.weights.load import load_decoder
from stages.engine.rollout.scoring import make_scorer
from stages.engine.training.config import AdamWConfig
from stages.engine.training.optimizer import make_rule
from stages.engine.training.state import TrainState, start_state
from stages.engine.training.step import Gradient, make_gradient, make_update
from stages.sft.loss import make_sft_loss

EXAMPLES = [Group((1, 90, 91, 92, 50 + row), [(60, 61, 70 + row, 2)[: 1 + row % 4]]) for row in range(5)]
RULE = make_rule(AdamWConfig(learning_rate=1e-2, max_grad_norm=0.5), 10)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    found = all_devices()
    assert found.num_devices == 4
    return found


class Model(NamedTuple):
    frozen: Frozen
    adapter: Weights


@pytest.fixture(scope="module")
def model() -> Model:
    decoder = load_decoder(TINY)
    attach_lora(decoder, LoraConfig(rank=4, alpha=4), seed=3)
    frozen, adapter = split(decoder)
    return Model(frozen, {name: value + 0.03 for name, value in adapter.items()})


def layout_for(num_devices: int, *, shared: bool) -> Layout:
    """One row for each group, or one row for all of a device's groups."""
    prefix, width = (4, 48) if shared else (0, 16)
    return Layout(prefix, 2, 1, 4, width, num_devices)


@pytest.fixture(scope="module")
def alone(model: Model) -> Gradient:
    whole = Layout(0, len(EXAMPLES), 1, 4, 16).pack(EXAMPLES)
    return make_gradient(make_sft_loss(model.frozen.graph))(model.adapter, model.frozen.base, whole)


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((8, 12), PartitionSpec(None, AXES)),
        ((8, 3), PartitionSpec(AXES, None)),
        ((4, 4), PartitionSpec(AXES, None)),
        ((3, 6), PartitionSpec(None, None)),
        ((0, 4), PartitionSpec(None, AXES)),
        ((), PartitionSpec()),
    ],
)
def test_the_longest_axis_that_divides_evenly_is_divided(
    cluster: Cluster, shape: tuple[int, ...], spec: PartitionSpec
) -> None:
    assert cluster.mesh is not None
    assert divided(cluster.mesh, shape).spec == spec


def test_rows_go_to_the_devices_in_order_and_what_is_whole_is_everywhere(cluster: Cluster) -> None:
    values = np.arange(24, dtype=np.float32).reshape(8, 3)
    rows, whole = divide_rows(cluster, values), replicate(cluster, values)
    assert isinstance(rows, jax.Array)
    assert isinstance(whole, jax.Array)
    for device, shard in enumerate(sorted(rows.addressable_shards, key=lambda shard: shard.device.id)):
        np.testing.assert_array_equal(shard.data, values[2 * device : 2 * device + 2])
    assert {shard.data.shape for shard in whole.addressable_shards} == {(8, 3)}
    back = of_this_process(cluster, {"rows": rows, "whole": whole})
    assert all(isinstance(leaf, np.ndarray) for leaf in back.values())
    np.testing.assert_array_equal(back["rows"], values)
    np.testing.assert_array_equal(back["whole"], values)


@pytest.mark.parametrize("shared", [False, True])
def test_rows_divided_over_devices_give_the_loss_and_gradient_of_one(
    cluster: Cluster, model: Model, alone: Gradient, *, shared: bool
) -> None:
    batch = layout_for(4, shared=shared).pack(EXAMPLES)
    assert batch.tokens.shape[0] == (4 if shared else 8)
    found = make_gradient(make_sft_loss(model.frozen.graph), cluster)(
        replicate(cluster, model.adapter), replicate(cluster, model.frozen.base), divide_rows(cluster, batch)
    )
    np.testing.assert_allclose(found.loss.total, alone.loss.total, rtol=1e-6)
    assert float(found.loss.denominator) == float(alone.loss.denominator)
    for name, value in alone.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=5e-6 * np.abs(value).max(), err_msg=name)


def test_devices_drop_what_one_drops(cluster: Cluster, model: Model) -> None:
    def numbered(layout: Layout) -> NumberedBatch:
        batch = layout.pack(EXAMPLES)
        owners = layout.owners(slice(None), len(EXAMPLES), batch, 4)
        return NumberedBatch(batch, TokenNumbers(np.full(len(owners), 3, np.int32), owners))

    loss = make_sft_loss(model.frozen.graph, dropout=0.3, seed=5)
    expected = make_gradient(loss)(model.adapter, model.frozen.base, numbered(Layout(0, len(EXAMPLES), 1, 4, 16)))
    found = make_gradient(loss, cluster)(
        replicate(cluster, model.adapter),
        replicate(cluster, model.frozen.base),
        divide_rows(cluster, numbered(layout_for(4, shared=True))),
    )
    np.testing.assert_allclose(found.loss.total, expected.loss.total, rtol=1e-6)
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=5e-6 * np.abs(value).max(), err_msg=name)


def test_rows_divided_over_devices_score_as_on_one(cluster: Cluster, model: Model) -> None:
    batch = layout_for(4, shared=False).pack(EXAMPLES)
    base = replicate(cluster, model.frozen.base)
    score = make_scorer(model.frozen._replace(base=base), 0.7, cluster)
    found = score(replicate(cluster, model.adapter), divide_rows(cluster, batch))
    expected = make_scorer(model.frozen, 0.7)(model.adapter, batch)
    np.testing.assert_allclose(np.asarray(found)[batch.target_mask], np.asarray(expected)[batch.target_mask], rtol=1e-5)


def test_an_update_with_divided_moments_is_that_of_one_device(cluster: Cluster, model: Model, alone: Gradient) -> None:
    updates = []
    for where in (ALONE, cluster):
        state, update = start_state(model.adapter, RULE, 0, where), make_update(RULE, where)
        first = update(state.weights, state.optimizer, replicate(where, alone))
        updates.append(update(first.weights, first.optimizer, replicate(where, alone)))
    expected, found = updates
    np.testing.assert_allclose(found.grad_norm, expected.grad_norm, rtol=1e-6)
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=1e-6, err_msg=name)
    moments = [leaf for leaf in jax.tree.leaves(found.optimizer) if leaf.ndim]
    assert moments
    assert all(4 * leaf.addressable_shards[0].data.size == leaf.size for leaf in moments)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(found.weights))


def test_a_wish_is_heeded_by_all_at_the_next_step_and_alone_at_once(cluster: Cluster) -> None:
    wishes = [False, True, False, False]
    together, alone = Agreement(cluster), Agreement(ALONE)
    assert [together.wished(wish) for wish in wishes] == [False, False, True, False]
    assert [alone.wished(wish) for wish in wishes] == wishes
    assert [agreed(cluster, opinion) for opinion in (True, False)] == [True, False]


@pytest.mark.parametrize(("writers", "readers"), [(1, 4), (4, 1)])
def test_a_state_is_restored_onto_another_number_of_devices(
    cluster: Cluster, model: Model, tmp_path: Path, writers: int, readers: int
) -> None:
    places = {1: ALONE, 4: cluster}
    trial = StageTrial(tmp_path, "sft", StageConfigBase(), {})
    state = start_state(model.adapter, RULE, 7, places[writers])
    state = state._replace(
        optimizer=jax.tree.map(lambda leaf: leaf + jnp.asarray(1, leaf.dtype), state.optimizer),
        counters=state.counters._replace(step=3),
    )
    writer = ProgressWriter(trial.context().progress)
    writer.save(3, state)
    writer.close()
    template = start_state(model.adapter, RULE, 7, places[readers])

    def accept(found: TrainState, point: ProgressPoint) -> None:
        assert found.counters == state.counters

    found = restore_newest(trial.context().progress, template, accept, places[readers])
    assert found is not None
    for leaf, expected, placed in zip(*map(jax.tree.leaves, (found, state, template)), strict=True):
        np.testing.assert_array_equal(leaf, expected)
        if isinstance(placed, jax.Array):
            assert leaf.sharding == placed.sharding


def test_devices_share_a_batch_even_where_a_micro_batch_would_hold_it_all() -> None:
    layout = choose_layout(
        [group.prompt for group in EXAMPLES],
        batch_size=5,
        micro_batch=16,
        group_size=1,
        max_response=4,
        num_devices=4,
    )
    assert layout.micro_batch == 2
