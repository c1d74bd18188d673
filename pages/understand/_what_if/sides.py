"""The two sides of the page What if: the text as it was typed, and as it is after the changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mha_core import AttentionTrace, MhaError, Tokens
from mha_core.analysis.frames import WINDOW
from mha_core.scene import swaps
from mha_core.scene.changes import Change, edits_of, swaps_of
from mha_core.scene.scene import Scene
from mha_core.scene.swaps import Swap
from pages._kit import compute, pair


class Rearranged(NamedTuple):
    """A text with words swapped, without any other change; the typed text if none are swapped.

    `partners` match its tokens to the typed ones; None if they cannot be matched.
    """

    scene: Scene
    trace: AttentionTrace
    swaps: tuple[Swap, ...] = ()
    partners: pair.Partners | None = pair.SAME

    def query(self, before: int) -> int:
        """The position to which a token has moved; its old position if that is not known."""
        if self.partners is not None and self.partners.queries is not None:
            return self.partners.queries.index(before)
        return min(before, self.trace.layers[0].n_query - 1)


def typed(scene: Scene, trace: AttentionTrace) -> Tokens | None:
    """The tokens of the typed text, whose words can be swapped; None if it has another text."""
    try:
        return swaps.typed_tokens(scene.text, trace.sides)
    except MhaError:
        return None


def changed(
    scene: Scene, before: AttentionTrace, chosen: Sequence[Change]
) -> tuple[Rearranged, AttentionTrace, MhaError | None]:
    """The text after the swaps, its trace with the edits, and the reason if one of them cannot be computed.

    If the edited trace cannot be computed, the unedited one is returned with the reason.
    """
    text = Rearranged(scene, before)
    try:
        if swapped := swaps_of(chosen):
            words = swaps.typed_tokens(scene.text, before.sides)
            scene = replace(scene, text=swaps.text(words, swapped))
            after = compute.trace(scene)
            pairs = (before.sides.queries, after.sides.queries), (before.sides.keys, after.sides.keys)
            orders = [swaps.order(*texts, swapped) for texts in pairs]
            # Of a long text each side draws its own part.
            known = None not in orders and before.sides.length <= WINDOW
            text = Rearranged(scene, after, swapped, pair.Partners(*orders) if known else None)
        edits = edits_of(chosen)
        return text, compute.trace(text.scene, edits=edits) if edits else text.trace, None
    except MhaError as error:
        return text, before, error
