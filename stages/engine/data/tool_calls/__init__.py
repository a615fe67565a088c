"""How models write calls of tools."""
