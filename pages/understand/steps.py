"""How does a sentence become the output? In three views: step by step, the order of words, two layers."""

from mha_core.scene.scene import DEFAULTS
from pages._kit import state, views


def begin(view: str) -> None:
    """Two layers open on the standard model, in which an answer comes from both, where none was chosen."""
    asked = state.setting("source"), state.setting("architecture")
    if view == "layers" and asked == (DEFAULTS.source, DEFAULTS.architecture):
        state.go(architecture="standard")


match views.choose("steps_view", ("steps", "order", "layers"), begin):
    case "order":
        from pages.understand._steps import word_order

        word_order.page()
    case "layers":
        from pages.understand._steps import two_layers

        two_layers.page()
    case _:
        from pages.understand._steps import step_by_step

        step_by_step.page()
