"""Results as people name them on the command line."""

from pipelines.spec.nodes import Pipeline, StageNode
from pipelines.spec.plan import make_plan
from stages.errors import UserError
from stages.store.conditional import ConditionalStore
from stages.store.lineage import Origin
from stages.store.survey import Survey
from stages.store.targets import find_target

RESULT_HELP = "a stage of the pipeline, an alias, the first 8 or more characters of a key, each with /OUTPUT if wanted"


def find_result(pipeline: Pipeline, store: ConditionalStore, found: Survey, text: str) -> Origin:
    """An output of a stage of the pipeline as it is now, or whatever else of the store `text` names.

    Raises:
        UserError: it names nothing, or the key of the stage is not known yet.
    """
    name, _, output = (text, "", "") if text in pipeline.nodes else text.rpartition("/")
    node = pipeline.nodes.get(name)
    if not isinstance(node, StageNode):
        return find_target(store, found, text)
    key = make_plan(pipeline, store).nodes[name].key
    if key is None:
        raise UserError(f"{name}: its key is not known before what it depends on is committed")
    return Origin(key=key, output=output or None)
