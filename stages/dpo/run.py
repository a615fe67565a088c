"""Learning from preferences, top to bottom."""

from collections.abc import Sequence

from stages.contract import StageContext
from stages.dpo.baseline import make_baseline, mismatched
from stages.dpo.config import DpoConfig
from stages.dpo.loss import PreferenceBatch, make_preference_loss
from stages.dpo.reference import Comparison, open_reference
from stages.dpo.scoring import Candidates, make_response_scorer
from stages.dpo.task import make_task
from stages.engine.cluster.mesh import Cluster, all_devices
from stages.engine.data.batching import Group, group_length
from stages.engine.data.packing import choose_packing
from stages.engine.data.preferences import Preferences, read_preferences
from stages.engine.data.records import LabelledRow, PreferenceRow
from stages.engine.models.opened import OpenedModel, open_model
from stages.engine.models.source import LoadedModel, check_length, load_trained_model
from stages.engine.training.supervised import dataset_names, fit, write_trained
from stages.engine.training.task import Task


def run(context: StageContext, config: DpoConfig) -> None:
    """Trains the input model on preferences."""
    names = dataset_names(context, config)
    opened = open_model(context)
    reference = open_reference(context, config, opened)
    takes = (PreferenceRow, LabelledRow) if config.takes_labels else (PreferenceRow,)
    sets = [
        read_preferences(context.input_dir(name), takes, opened.chat, config.max_tokens, config.identical_pairs)
        for name in names
    ]
    longest = max(group_length(group) for preferences in sets for group in preferences.groups)
    for given in filter(None, (opened, reference)):
        check_length(given, longest)
    cluster = all_devices(config.mesh)
    model = load_trained_model(opened, config.model, config.seed, cluster)
    tasks = _make_tasks(context, config, model, reference, sets, cluster)
    end = fit(context, config, model, tasks[0], tasks[1] if config.evaluate else None, cluster)
    write_trained(context, config, model, end, cluster)


def _make_tasks(
    context: StageContext,
    config: DpoConfig,
    model: LoadedModel,
    reference: OpenedModel | None,
    sets: Sequence[Preferences],
    cluster: Cluster,
) -> list[Task[PreferenceBatch]]:
    group_size = sets[0].desirable.shape[1]
    score = make_response_scorer(model.frozen, group_size, cluster)
    comparison = Comparison(context, config, model, score, reference, group_size, cluster)
    loss = make_preference_loss(
        model.frozen.graph,
        config.terms,
        group_size,
        remat=config.model.remat,
        dropout=config.adapter_dropout,
        seed=config.seed,
    )
    tasks = list[Task[PreferenceBatch]]()
    for preferences in sets:
        given, ref_logps, baseline = _pack(preferences.groups, config, cluster), None, None
        if config.needs_reference:
            ref_logps = comparison.with_reference(given)
        if config.needs_baseline:
            others = _pack(mismatched(preferences.groups, config.max_tokens), config, cluster)
            with_others = comparison.with_reference(others)
            baseline = make_baseline(score, with_others, others, given.packing.num_rows, cluster)
        tasks.append(make_task(preferences, given.packing, loss, ref_logps, baseline, config, model.chat))
    return tasks


def _pack(groups: Sequence[Group], config: DpoConfig, cluster: Cluster) -> Candidates:
    packing = choose_packing(
        groups,
        batch_size=config.batch_size,
        micro_batch=config.train_micro_batch,
        num_devices=cluster.num_row_shares,
    )
    return Candidates(groups, packing, config.batch_size)
