"""The claims of an atlas about a head: measures that stand out from equal weights and shuffled words."""

from typing import NamedTuple

import numpy as np

from mha_core.analysis.patterns import POSITIONS
from mha_core.analysis.roles import MARGIN, MIN_SHARE, MIN_WEIGHT
from mha_core.atlases.measures import ROLES
from mha_core.atlases.query import Atlas

NOT_CLAIMED = ("entropy", "distance")  # they say how a head looks, not at what
MIN_TEXTS = 20  # of fewer the interval means little


class Claim(NamedTuple):
    """A measure that stands out in a head: its row of `Atlas.heads`, by these names."""

    measure: str
    n: int
    mean: float
    low: float
    high: float
    shuffled: float
    chance: float
    fixed: float

    @property
    def is_role(self) -> bool:
        """Whether it is a link between words, and its mean the share of right ones; else a mean weight."""
        return self.measure in ROLES

    @property
    def by_position(self) -> bool:
        """Whether it is a position that the head looks at with the words shuffled, too."""
        return self.measure in POSITIONS and self.shuffled >= self.mean - MARGIN


def claims(atlas: Atlas) -> dict[tuple[int, int], tuple[Claim, ...]]:
    """The measures that stand out in each (layer, head), the largest first; a head without any is left out.

    As in `roles.labels`, the mean is at least `MIN_SHARE` for a link between words and `MIN_WEIGHT` for a
    weight. The lower end of its interval is at least `MARGIN` above chance; for a link also above the mean
    with the words shuffled, as of a head that knows the words and not the sentence, and above the best
    fixed distance. The measure exists in at least `MIN_TEXTS` texts.
    """
    rows = atlas.heads()
    is_role = rows["measure"].isin(ROLES)
    minimum = np.where(is_role, MIN_SHARE, MIN_WEIGHT)
    reference = rows["chance"].where(~is_role, rows[["chance", "shuffled", "fixed"]].max(axis=1))
    stands_out = (
        ~rows["measure"].isin(NOT_CLAIMED)
        & (rows["n"] >= MIN_TEXTS)
        & (rows["mean"] >= minimum)
        & (rows["low"] >= reference + MARGIN)
    )
    rows = rows[stands_out].sort_values("mean", ascending=False, kind="stable")
    found: dict[tuple[int, int], list[Claim]] = {}
    for place, *values in rows.set_index(["layer", "head"])[list(Claim._fields)].itertuples(name=None):
        found.setdefault(place, []).append(Claim(*values))
    return {place: tuple(of_head) for place, of_head in sorted(found.items())}
