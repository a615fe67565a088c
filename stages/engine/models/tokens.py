"""How tokens stand where matrices multiply them."""

from jaxtyping import Array, Float

from stages.engine.cluster.axes import on_several_devices


def along_one_axis(x_BTD: Float[Array, "B T D"]) -> Float[Array, "*N D"]:
    """Tokens of all rows along one axis, unless several devices share them, by rows and by tokens.

    With two axes, XLA on the CPU copies derivatives into another order before each product that makes a gradient.
    """
    return x_BTD if on_several_devices() else x_BTD.reshape(-1, x_BTD.shape[-1])
