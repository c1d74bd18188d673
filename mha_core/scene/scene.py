"""Everything that decides what is on screen, as one value. Heads and layers count from 1, as on screen."""

from dataclasses import dataclass, field

from mha_core.scene.focus import Focus

# What each source can be asked for, besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run", "step"),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
STARTED = ("mini", "run")  # sources whose sentences begin with [CLS]


@dataclass(frozen=True)
class Scene:
    """Everything that decides what is on screen."""

    text: str = "The animal didn't cross the street because it was too tired."
    twin: str = "The animal didn't cross the street because it was too wide."
    source: str = "mini"
    architecture: str = "glass-box"
    run: str | None = None
    step: int | None = None  # of the training, None for the last
    file: str | None = None
    kind: str | None = None
    model: str | None = None
    revision: str | None = None
    dtype: str | None = None
    target: str | None = None
    ask_model: bool = False
    h: int = 4
    d_model: int = 64
    seed: int = 0
    layers: int = 1
    d_k: int | None = None
    d_v: int | None = None
    n_kv_heads: int | None = None
    position: str = "sinusoidal"
    mask: str = "full"
    bias: bool = True
    edits: str = ""
    against: str = ""
    focus: Focus = field(default_factory=Focus)

    def settings(self, text: str | None = None) -> dict:
        """The source and what it is names for, for this text or another."""
        names = {name: getattr(self, name) for name in ("source", *SETTINGS[self.source])}
        return {"text": self.text if text is None else text, **names}


DEFAULTS = Scene()
