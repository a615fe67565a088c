"""Files that may be compressed, told by the end of their names."""

import gzip
import io
from pathlib import Path

from stages.engine.data.raw.arrow import import_pyarrow

COMPRESSIONS = (".gz", ".zst")


def open_bytes(path: Path) -> io.BufferedIOBase:
    """The file's content, unpacked while it is read.

    Raises:
        UserError: it is compressed with Zstandard, and the library that unpacks it is not installed.
        OSError: it cannot be read.
    """
    match path.suffix:
        case ".gz":
            return gzip.open(path)
        case ".zst":
            stream = import_pyarrow(path).input_stream(str(path), compression="zstd")
            return io.BufferedReader(stream, buffer_size=1 << 20)
        case _:
            return path.open("rb")


def kind_of_file(path: Path) -> str:
    """The end of the name that says what the file holds, as `.jsonl`; what says how it is packed is left out."""
    name = path.name.lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return Path(name).suffix
