"""Log-probabilities of targets, whatever rows they lie in."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stages.engine.data.batching import Batch, Group, PackedRow, TargetShape, pack_rows
from stages.engine.models.cache import look_at_tokens
from stages.engine.models.heads import score_targets, value_targets
from stages.engine.models.lora import Weights, bind
from stages.engine.models.source import LoadedModel
from stages.engine.models.transformer import Cells

pytestmark = pytest.mark.usefixtures("quickly_compiled")

TOLERANCE = 1e-5
PROMPT = (70, 71, 72, 73, 74)
RESPONSES = ((80, 81, 82, 2), (90, 2), (95, 96, 97, 98))


def score(model: LoadedModel, adapter: Weights, batch: Batch, temperature: float = 1.0) -> np.ndarray:
    run = jax.jit(lambda adapter, base: score_targets(bind(model.frozen.graph, adapter, base), batch, temperature))
    return np.where(batch.target_mask, run(adapter, model.frozen.base), 0)


def plain_outputs(
    model: LoadedModel, adapter: Weights, ids: Sequence[int]
) -> tuple[Float[Array, "T D"], Float[Array, "T V"]]:
    """Hidden states and logits of a causal pass over one sequence, without padding."""
    causal = jnp.tri(len(ids), dtype=bool)[None]

    def run(adapter: Weights, base: Cells) -> tuple[Float[Array, "T D"], Float[Array, "T V"]]:
        decoder = bind(model.frozen.graph, adapter, base)
        tokens, positions = jnp.array([ids]), jnp.arange(len(ids))[None]
        hidden, _ = decoder(tokens, positions, look_at_tokens(causal, positions))
        return hidden[0], decoder.logits(hidden[0])

    return jax.jit(run)(adapter, model.frozen.base)


def pack(rows: Sequence[PackedRow], width: int = 32) -> Batch:
    return pack_rows(rows, TargetShape(3, 3, 4), width)


def alone(response: Sequence[int]) -> PackedRow:
    return PackedRow((), [Group(PROMPT, [response])])


def test_a_target_is_scored_by_the_output_before_it_at_the_temperature(tiny: LoadedModel, moved: Weights) -> None:
    response = RESPONSES[0]
    _, all_logits = plain_outputs(tiny, moved, [*PROMPT, *response[:-1]])
    logits = np.asarray(all_logits, np.float64)[len(PROMPT) - 1 :]
    for temperature in (1.0, 0.7):
        scaled = logits / temperature
        expected = scaled[range(4), response] - np.log(np.exp(scaled).sum(axis=-1))
        found = score(tiny, moved, pack([alone(response)]), temperature)[0]
        np.testing.assert_allclose(found[:4], expected, atol=TOLERANCE)
        assert not found[4:].any()


def test_responses_in_one_row_are_scored_as_in_rows_of_their_own(tiny: LoadedModel, moved: Weights) -> None:
    group = score(tiny, moved, pack([PackedRow((), [Group(PROMPT, RESPONSES)])])).reshape(3, 3, 4)
    rows = score(tiny, moved, pack([alone(response) for response in RESPONSES])).reshape(3, 3, 3, 4)
    np.testing.assert_allclose(group[0], rows[:, 0, 0], atol=TOLERANCE)


def test_groups_over_a_common_beginning_are_scored_as_in_rows_of_their_own(tiny: LoadedModel, moved: Weights) -> None:
    others = [(*PROMPT[:2], *rest) for rest in ((60,), (61, 62), PROMPT[2:])]
    together = PackedRow(PROMPT[:2], [Group(prompt[2:], RESPONSES) for prompt in others])
    apart = [PackedRow((), [Group(prompt, RESPONSES)]) for prompt in others]
    one = score(tiny, moved, pack([together], width=48)).reshape(3, 3, 4)
    rows = score(tiny, moved, pack(apart)).reshape(3, 3, 3, 4)
    np.testing.assert_allclose(one, rows[:, 0], atol=TOLERANCE)


def test_width_and_empty_rows_change_nothing(tiny: LoadedModel, moved: Weights) -> None:
    rows = [alone(response) for response in RESPONSES]
    narrow = score(tiny, moved, pack(rows, width=16))
    wide = score(tiny, moved, pack([*rows, PackedRow((), ())], width=32))
    np.testing.assert_allclose(wide[:3], narrow, atol=TOLERANCE)
    assert np.isfinite(wide).all()


def test_a_value_is_read_off_the_hidden_state_before_its_target(tiny: LoadedModel, moved: Weights) -> None:
    head = jnp.linspace(-1.0, 2.0, tiny.opened.checkpoint.arch.width)[:, None]
    batch = pack([PackedRow((), [Group(PROMPT, RESPONSES)])])
    run = jax.jit(lambda adapter, base: value_targets(bind(tiny.frozen.graph, adapter, base), head, batch))
    found = np.asarray(run(moved, tiny.frozen.base)).reshape(3, 3, 4)[0]
    response = RESPONSES[0]
    hidden, _ = plain_outputs(tiny, moved, [*PROMPT, *response[:-1]])
    expected = (np.asarray(hidden, np.float64) @ np.asarray(head, np.float64))[len(PROMPT) - 1 :, 0]
    np.testing.assert_allclose(found[0, : len(response)], expected, atol=TOLERANCE, rtol=TOLERANCE)
