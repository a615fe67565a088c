"""Pure maths: arrays in, arrays out."""
