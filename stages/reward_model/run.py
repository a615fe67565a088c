"""Training of a reward model, top to bottom."""

from dataclasses import replace

import numpy as np

from stages.contract import StageContext
from stages.engine.cluster.mesh import Cluster, all_devices
from stages.engine.data.batching import group_length
from stages.engine.data.preferences import Preferences, read_preferences
from stages.engine.data.records import PreferenceRow
from stages.engine.models.opened import open_model
from stages.engine.models.reward_head import fresh_head
from stages.engine.models.source import LoadedModel, check_length, load_trained_model
from stages.engine.rollout.scoring import RewardScorer
from stages.engine.training.state import TrainState, final_weights
from stages.engine.training.supervised import dataset_names, fit, write_trained
from stages.reward_model.calibration import PairRewards, add_to_report
from stages.reward_model.config import RewardModelConfig
from stages.reward_model.loss import make_reward_loss
from stages.reward_model.task import make_task


def run(context: StageContext, config: RewardModelConfig) -> None:
    """Trains the input model, with a head of its own or a fresh one, to prefer the chosen responses."""
    names = dataset_names(context, config)
    opened = open_model(context, reward_head="allowed")
    sets = [
        read_preferences(
            context.input_dir(name), (PreferenceRow,), opened.chat, config.max_tokens, config.identical_pairs
        )
        for name in names
    ]
    check_length(opened, max(group_length(group) for pairs in sets for group in pairs.groups))
    cluster = all_devices(config.mesh)
    model = load_trained_model(opened, config.model, config.seed, cluster)
    head = {} if opened.rewards else fresh_head(opened.checkpoint.arch.width, config.seed)
    model = replace(model, trained=model.trained | head)
    loss = make_reward_loss(
        model.frozen.graph,
        config.centering_coef,
        remat=config.model.remat,
        dropout=config.adapter_dropout,
        seed=config.seed,
    )
    tasks = [make_task(pairs, loss, config, opened.chat, cluster.num_row_shares) for pairs in sets]
    end = fit(context, config, model, tasks[0], tasks[1] if config.evaluate else None, cluster)
    write_trained(context, config, model, end, cluster)
    if config.evaluate:
        add_to_report(context.output_dir("report"), _rewards(sets[1], model, end, config, cluster), config.num_bins)


def _rewards(
    pairs: Preferences, model: LoadedModel, end: TrainState, config: RewardModelConfig, cluster: Cluster
) -> PairRewards:
    """Of pairs by the trained model."""
    scorer = RewardScorer(
        model.frozen, final_weights(end), group_size=2, micro_batch=config.train_micro_batch, cluster=cluster
    )
    chosen, rejected = np.stack(scorer.score(pairs.groups)).T
    return PairRewards(pairs.ids, chosen, rejected)
