"""A finished figure, for many who look at the same one."""

from plotly.basedatatypes import BaseFigure


class Packed(BaseFigure):
    """A plotly figure as the JSON that the browser gets; it is copied and packed once, and never changed.

    Packing takes longer than all else that is done to draw a figure again.
    """

    def __init__(self, figure: BaseFigure):
        object.__setattr__(self, "_packed", figure.to_dict())

    def to_dict(self) -> dict:
        return self._packed

    def with_meta(self, meta: dict) -> "Packed":
        """The figure with this `layout.meta`."""
        other = object.__new__(Packed)
        layout = self._packed["layout"] | {"meta": meta}
        object.__setattr__(other, "_packed", self._packed | {"layout": layout})
        return other
