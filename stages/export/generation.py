"""How the makers of a base want it sampled, and where responses of the exported model end."""

import json
from pathlib import Path

from pydantic import JsonValue, TypeAdapter

from stages.engine.data.tokenizer_config import GENERATION_FILE

_ENTRIES = TypeAdapter(dict[str, JsonValue])


def add_published_generation(folder: Path, base: Path) -> None:
    """Takes the settings of the base's own file, where it has one, into the file of an exported tokenizer.

    End tokens stay those of the tokenizer: replies were trained to end with one of them, and the base's file may lack
    it.
    """
    published, own = base / GENERATION_FILE, folder / GENERATION_FILE
    if published.is_file():
        ends = _ENTRIES.validate_json(own.read_bytes())["eos_token_id"]
        entries = _ENTRIES.validate_json(published.read_bytes()) | {"eos_token_id": ends}
        own.write_text(json.dumps(entries, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
