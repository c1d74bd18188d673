"""A finished figure that many pages draw."""

from plotly.basedatatypes import BaseFigure


class Packed(BaseFigure):
    """A plotly figure as the JSON for the browser: serialized once, and never changed.

    Serializing takes longer than everything else in drawing a figure again.
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
