"""Amounts as people read them."""

_UNITS = ("B", "kB", "MB", "GB", "TB")


def describe_time(seconds: float) -> str:
    """`42 s`, `11 min` or `6.0 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def describe_size(size: int) -> str:
    """`512 B`, `34 kB`, `1.2 MB` or `34 GB`, in powers of 1000."""
    amount, power = float(size), 0
    while amount >= 999.5 and power < len(_UNITS) - 1:
        amount, power = amount / 1000, power + 1
    shown = f"{amount:.1f}" if power > 0 and amount < 9.95 else f"{amount:.0f}"
    return f"{shown} {_UNITS[power]}"
