"""The rules of the house that the import contracts cannot see."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("flows", "tasks", "stages", "pipelines")


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{name(path)}:{node.lineno}: relative import"
            yield node.module


@pytest.mark.parametrize("path", [path for path in modules(*PRODUCT) if path.name == "__init__.py"], ids=name)
def test_an_init_file_holds_a_docstring_and_nothing_else(path: Path):
    body = tree(path).body
    assert len(body) == 1
    assert ast.get_docstring(tree(path))


def test_every_folder_with_code_is_a_package():
    assert [name(path) for path in modules(*PRODUCT) if not (path.parent / "__init__.py").exists()] == []


def test_test_folders_are_no_packages():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_module_says_what_it_is():
    assert [name(path) for path in modules(*PRODUCT) if not ast.get_docstring(tree(path))] == []


def test_objectives_import_jax_and_themselves_only():
    allowed = {"jax", "jaxtyping", *sys.stdlib_module_names}
    folder = ROOT / "stages" / "engine" / "objectives"
    foreign = [
        f"{name(path)}: {module}"
        for path in folder.rglob("*.py")
        for module in imported(path)
        if module.split(".")[0] not in allowed and not module.startswith("stages.engine.objectives")
    ]
    assert foreign == []


def test_statistics_need_the_standard_library_only():
    used = set(imported(ROOT / "stages" / "statistics.py"))
    assert {module.split(".")[0] for module in used - {"stages.errors"}} <= sys.stdlib_module_names


def test_no_private_module_of_jax_is_used():
    private = [
        f"{name(path)}: {module}"
        for path in modules(*PRODUCT, "tests")
        for module in imported(path)
        if module.startswith("jax.") and any(part.startswith("_") for part in module.split("."))
    ]
    assert private == []


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in modules(*PRODUCT):
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node


def calls(*called: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls in product code of a function by its bare name, each with its place."""
    for path in modules(*PRODUCT):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in called:
                yield f"{name(path)}:{node.lineno}", node


def test_no_function_is_longer_than_60_lines():
    assert [
        f"{name(path)}:{node.lineno}: {node.name}"
        for path, node in functions()
        if node.end_lineno is not None and node.end_lineno - node.lineno >= 60
    ] == []


def test_no_attribute_is_read_with_a_default():
    assert [place for place, call in calls("getattr") if len(call.args) == 3] == []


KEYWORDS_OF_OTHERS = ["stages/engine/data/template_sandbox.py: call"]
"""Methods that Jinja calls with what stands in a template."""


def test_no_function_passes_unnamed_keywords_through():
    assert [f"{name(path)}: {node.name}" for path, node in functions() if node.args.kwarg] == KEYWORDS_OF_OTHERS


CONTAINERS = {"dict", "list", "set", "frozenset", "tuple", "Mapping", "Sequence", "Iterable", "Iterator", "Callable"}


def annotations() -> Iterator[tuple[Path, ast.expr]]:
    for path in modules(*PRODUCT):
        for node in ast.walk(tree(path)):
            match node:
                case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
                    yield path, annotation
                case ast.FunctionDef(returns=ast.expr() as annotation):
                    yield path, annotation


def test_an_annotation_says_what_a_container_holds():
    bare: list[str] = []
    for path, annotation in annotations():
        filled = {id(node.value) for node in ast.walk(annotation) if isinstance(node, ast.Subscript)}
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name) and node.id in CONTAINERS and id(node) not in filled:
                bare.append(f"{name(path)}:{node.lineno}: {node.id}")
    assert bare == []


def test_model_output_and_stored_bytes_are_never_run_as_code():
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    loaded = [f"{name(path)}: {module}" for path in modules(*PRODUCT) for module in imported(path) if module in banned]
    assert loaded + [place for place, _ in calls("eval", "exec", "compile")] == []


def test_a_configuration_file_holds_settings_only():
    assert [
        f"{name(path)}: {node.name}"
        for path in modules("stages")
        if path.name == "config.py"
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef)
    ] == []
