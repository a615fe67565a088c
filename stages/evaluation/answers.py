"""Answers that models draw, kept as progress: what was drawn before a stop is not drawn again."""

import logging
import time
from collections.abc import Sequence

import jax
from etils import epath
from pydantic import Field, ValidationError

from stages.contract import StageContext, Strict
from stages.engine.cluster.agreement import Agreement
from stages.engine.cluster.mesh import all_devices
from stages.engine.models.source import LoadedModel
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.native.sampler import NativeSampler
from stages.engine.rollout.together import sample_together
from stages.errors import PreemptedError

logger = logging.getLogger(__name__)

FILE = "answers.json"


class Answer(Strict):
    """One response."""

    tokens: tuple[int, ...]
    """The end token included where there is one."""
    ended: bool
    """Whether the response closed with an end token, and was not cut off."""


class Drawn(Strict):
    """All answers so far: by who answers, row by row, and of a row sample by sample."""

    answers: dict[str, list[tuple[Answer, ...]]] = Field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows answered, by everybody."""
        return sum(map(len, self.answers.values()))


class AnswerBook:
    """Draws answers, and saves them when a save is due and when the stage is asked to stop."""

    def __init__(self, context: StageContext, total: int) -> None:
        """Reads what an earlier attempt saved; `total` rows are to be answered, by everybody together."""
        self._context = context
        self._total = total
        self._drawn = _restore(context)
        self._saved = self._drawn.num_rows
        context.beat(self._saved, total, {})

    def draw(
        self,
        who: str,
        model: LoadedModel,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingConfig,
        *,
        num_samples: int = 1,
        micro_batch: int,
        seed: int,
    ) -> list[tuple[Answer, ...]]:
        """Answers to all prompts.

        What an answer is drawn with depends on the seed, and the numbers of its prompt and sample alone: two models
        are asked the same with the same random numbers.

        Args:
            who: answers, under which name they are kept.
            model: that answers.
            prompts: in ids.
            sampling: how answers are drawn.
            num_samples: answers to each prompt.
            micro_batch: prompts answered at once, by each process.
            seed: of all answers.

        Raises:
            PreemptedError: asked to stop; what was drawn is saved.
        """
        found = self._drawn.answers.setdefault(who, [])
        sampler = NativeSampler(
            model.frozen,
            model.chat.tokenizer.eos_ids,
            sampling,
            group_size=num_samples,
            micro_batch=micro_batch,
            prompts=prompts,
            seed=seed,
        )
        stops, at_once = Agreement(all_devices()), micro_batch * jax.process_count()
        started, before = time.monotonic(), len(found)
        while len(found) < len(prompts):
            if stops.wished(self._context.should_stop()):
                self.save()
                raise PreemptedError(f"stopped after {len(found)} of {len(prompts)} answers; they are saved")
            here = range(len(found), min(len(found) + at_once, len(prompts)))
            responses = sample_together(sampler, model.trained, [prompts[row] for row in here], here, step=0)
            for tokens, ended in zip(responses.tokens, responses.ended, strict=True):
                found.append(tuple(Answer(tokens=ids, ended=bool(end)) for ids, end in zip(tokens, ended, strict=True)))
            num_tokens = sum(len(answer.tokens) for answers in found[before:] for answer in answers)
            shown = {"tokens_per_second": num_tokens / (time.monotonic() - started)}
            self._context.beat(self._drawn.num_rows, self._total, shown)
            if self._context.progress.save_due():
                self.save()
        return found

    def save(self) -> None:
        """Saves what is new; only the process that leads does."""
        done = self._drawn.num_rows
        if done > self._saved and jax.process_index() == 0:
            folder = epath.Path(self._context.progress.new_uri(done))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILE).write_text(self._drawn.model_dump_json())
            self._context.progress.commit(done)
        self._saved = done


def _restore(context: StageContext) -> Drawn:
    for point in context.progress.candidates():
        uri = context.progress.uri(point)
        try:
            return Drawn.model_validate_json((epath.Path(uri) / FILE).read_text())
        except (OSError, ValidationError) as error:
            logger.warning("%s cannot be read, an earlier step is tried: %s", uri, error)
    return Drawn()
