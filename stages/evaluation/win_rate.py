"""How often a model's reply is better than another one, by a judge or by a reward model."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from pydantic import JsonValue

from stages.contract import StageContext
from stages.engine.cluster.mesh import all_devices
from stages.engine.data.batching import Group, group_length
from stages.engine.data.records import PreferenceRow, Row, open_dataset
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import check_length, load_model
from stages.engine.rollout.config import SamplingConfig
from stages.engine.rollout.scoring import RewardScorer
from stages.errors import UserError
from stages.evaluation.answers import AnswerBook
from stages.evaluation.config import EvaluationConfig, WinRateTask
from stages.evaluation.judge import question, verdict, win
from stages.evaluation.report import Sample, write_report


class Duel(NamedTuple):
    """A row and two replies to its prompt."""

    row: Row | PreferenceRow
    reply: str
    other: str


def compete(context: StageContext, config: EvaluationConfig, task: WinRateTask, sampling: SamplingConfig) -> None:
    """Answers every row, and has the answers compared with others."""
    rows = [*open_dataset(context.input_dir("dataset"), Row, PreferenceRow)]
    names = ("model", "reference") if context.has_input("reference") else ("model",)
    players = {name: open_model(context, name) for name in names}
    umpire = open_model(context, "judge") if task.by == "judge" else open_model(context, "reward_model", "required")
    written = [_written(row) for row in rows] if "reference" not in players else []
    prompts = {name: _prompts(opened, rows, sampling) for name, opened in players.items()}
    num_verdicts = 2 * len(rows) if task.by == "judge" else 0
    book = AnswerBook(context, len(players) * len(rows) + num_verdicts)
    replies = {name: _replies(name, opened, prompts[name], book, config, sampling) for name, opened in players.items()}
    others = replies.get("reference", written)
    duels = [Duel(*given) for given in zip(rows, replies["model"], others, strict=True)]
    if task.by == "judge":
        samples, means = _judged(duels, umpire, book, config, task), {"unparsed_rate": "unparsed"}
    else:
        samples, means = _rewarded(duels, umpire, config), {"mean_margin": "margin"}
    write_report(context, samples, {"win_rate": "win_rate", "tie_rate": "tie", **means}, {})


def _written(row: Row | PreferenceRow) -> str:
    """The dataset's own reply, which is the opponent where no model is."""
    if isinstance(row, Row):
        return row.response
    *others, reply = row.chosen
    if others:
        raise UserError(f"row {row.id}: chosen has {len(row.chosen)} turns; a reply that is compared is one turn")
    return reply.content


def _prompts(opened: OpenedModel, rows: Sequence[Row | PreferenceRow], sampling: SamplingConfig) -> list[list[int]]:
    prompts = [opened.chat.prompt_ids(row.messages, row.tools) for row in rows]
    check_length(opened, max(map(len, prompts)) + sampling.max_response_tokens)
    return prompts


def _replies(
    name: str,
    opened: OpenedModel,
    prompts: Sequence[Sequence[int]],
    book: AnswerBook,
    config: EvaluationConfig,
    sampling: SamplingConfig,
) -> list[str]:
    """The first answer of a model to each prompt, as text."""
    answers = book.draw(
        name, load_model(opened), prompts, sampling, micro_batch=config.rollout_micro_batch, seed=config.seed
    )
    return [opened.chat.reply_text(of_row[0].tokens) for of_row in answers]


def _judged(
    duels: Sequence[Duel], judge: OpenedModel, book: AnswerBook, config: EvaluationConfig, task: WinRateTask
) -> list[Sample]:
    """Every duel is judged twice, each reply once in the first place."""
    orders = [pair for duel in duels for pair in ((duel.reply, duel.other), (duel.other, duel.reply))]
    questions = [question(duels[number // 2].row.messages, *pair) for number, pair in enumerate(orders)]
    sampling = SamplingConfig(temperature=0.0, max_response_tokens=task.judge_tokens)
    prompts = [judge.chat.prompt_ids(messages) for messages in questions]
    check_length(judge, max(map(len, prompts)) + sampling.max_response_tokens)
    said = _replies("judge", judge, prompts, book, config, sampling)
    samples: list[Sample] = []
    for number, duel in enumerate(duels):
        judgements = said[2 * number : 2 * number + 2]
        verdicts = [verdict(text) for text in judgements]
        more = {"unparsed": fmean(found is None for found in verdicts), "judgements": list[JsonValue](judgements)}
        samples.append(_sample(duel, win(*verdicts), more))
    return samples


def _rewarded(duels: Sequence[Duel], opened: OpenedModel, config: EvaluationConfig) -> list[Sample]:
    chat = opened.chat
    groups = [
        Group(chat.prompt_ids(duel.row.messages, duel.row.tools), [*map(chat.response_ids, (duel.reply, duel.other))])
        for duel in duels
    ]
    check_length(opened, max(map(group_length, groups)))
    cluster = all_devices()
    model = load_model(opened, cluster)
    scorer = RewardScorer(
        model.frozen, model.trained, group_size=2, micro_batch=config.rollout_micro_batch, cluster=cluster
    )
    samples: list[Sample] = []
    for duel, rewards in zip(duels, scorer.score(groups), strict=True):
        reply, other = rewards.tolist()
        more = {"reward": reply, "other_reward": other, "margin": reply - other}
        samples.append(_sample(duel, 0.5 if reply == other else float(reply > other), more))
    return samples


def _sample(duel: Duel, share: float, more: Mapping[str, JsonValue]) -> Sample:
    return {
        "id": duel.row.id,
        "prompt": duel.row.messages[-1].content,
        "response": duel.reply,
        "other": duel.other,
        "win_rate": share,
        "tie": float(share == 0.5),
        **more,
    }
