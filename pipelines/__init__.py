"""Shipped pipelines and the specification that reads them."""
