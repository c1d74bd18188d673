"""The words that a model of transformers answers, on the pages that ask it for them."""

from collections.abc import Sequence

import streamlit as st

from mha_core import MhaError
from mha_core.attention.edits import Edit
from mha_core.scene.scene import Scene
from pages._kit import compute, model_source
from pages._kit.model_source import Parts
from pages._kit.text import literal, t


def asked(scene: Scene, texts: Sequence[tuple[str, Sequence[Edit]]]) -> list[Parts]:
    """The traces of texts, each under its edits, with the model's answers, where the scene asks for them.

    None where it does not, and where the model has no answers, which is said.
    """
    if not scene.ask_model:
        return []
    try:
        with st.spinner(t("answer.ask_wait")):
            return [_answered(scene, text, edits) for text, edits in texts]
    except MhaError as error:
        st.info(t("answer.refused", reason=literal(str(error))), icon=":material/forum:")
        return []


def _answered(scene: Scene, text: str, edits: Sequence[Edit]) -> Parts:
    """The traces of a text, or of its beginning, where that is all that the model reads of it."""
    try:
        return model_source.answered(scene, text, edits)
    except MhaError as error:
        return model_source.answered(scene, compute.beginning(error), edits)
