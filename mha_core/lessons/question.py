"""The kinds of questions. Each is answered by an act on a picture, and an answer is written as a short text.

=========  ============================================  ==========================
kind       the act                                       an answer as text
=========  ============================================  ==========================
point      point at the word that is looked at most      ``3``
cell       point at a cell of the empty matrix           ``9,3``: row and column
draw       draw the row of weights                       ``3:60,7:40``, in per cent
order      put heads in order                            ``3,1,2``
choose     choose one of two pictures                    ``1`` or ``2``
estimate   a number on a line                            ``0.85``
flip       the change that flips the model's answer      ``cut,from=9,to=3``
find       a sentence in which something holds           the sentence
why        a reason in a sentence; it is not scored      the sentence
=========  ============================================  ==========================

Words, heads, rows and columns count from 1, as on screen. No key is written anywhere: it is computed from the
trace. A question whose key is too close to another answer is refused with `MhaError`.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, pairwise, zip_longest
from typing import ClassVar, NamedTuple

import numpy as np

from mha_core.attention.edits import Edit, Hide, Output, Weights
from mha_core.errors import MhaError, Phrase, listed, one_of, shown
from mha_core.focus.token_names import as_number, position
from mha_core.lessons.item import Item, Key, Question
from mha_core.lessons.sentences import variants
from mha_core.scene import changes
from mha_core.scene.scene import Scene
from mha_core.traces.answers import is_known

MARGIN = 0.2  # of a weight, to the next: what is closer is ambiguous
DRAWN = 0.25  # of the total variation between a drawn row and the true one: closer is right
ON_LINE = 0.1  # of a line's length between an estimate and the number: closer is right
COMPUTED = 0.02  # the same of a number that can be computed from what the screen shows
MAX_GIVEN = 8  # numbers in a row of what is shown to compute with
MAX_HEADS = 8  # to put in order
MAX_TEXT = 600  # characters of a typed answer
NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?(e-?\d{1,3})?", re.ASCII)  # as a browser writes it
MAX_TRIED = 64  # sentences that are tried for one in which a condition holds


@dataclass(frozen=True)
class Point(Question):
    """Which word does the head look at most from the token? Run, the row looks at the answer alone."""

    kind: ClassVar[str] = "point"

    def key(self, item: Item) -> Key:
        return _largest(item)

    def check(self, item: Item, answer: str) -> None:
        _count(answer, len(item.words), Phrase("word"))

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        return item.scene, [_looking(item, item.place[2], int(answer) - 1)]

    def misreads(self, item: Item, answer: str) -> bool:
        """Whether it is the word that clearly looks at the token most, not the one it looks at."""
        layer, head, token = item.place
        if item.queries != item.words or self.is_right(item, answer):
            return False
        column = item.trace.layers[layer].weights(head)[:, token]
        at = int(answer) - 1
        return bool(column[at] - np.delete(column, at).max() >= MARGIN)


@dataclass(frozen=True)
class Cell(Question):
    """Where is the largest weight of the token's row in the whole matrix?

    Run, the row of the chosen cell looks at its column alone.
    """

    kind: ClassVar[str] = "cell"

    def key(self, item: Item) -> Key:
        column, margin = _largest(item)
        return Key((f"{item.place[2] + 1},{column[0]}",), margin)

    def check(self, item: Item, answer: str) -> None:
        row, comma, column = answer.partition(",")
        if not comma:
            raise MhaError("A cell is its row and its column, as 9,3; got {answer}.", answer=shown(answer))
        _count(row, len(item.queries), Phrase("row"))
        _count(column, len(item.words), Phrase("column"))

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        row, _, column = answer.partition(",")
        return item.scene, [_looking(item, int(row) - 1, int(column) - 1)]

    def misreads(self, item: Item, answer: str) -> bool:
        """Whether row and column are exchanged."""
        row, _, column = answer.partition(",")
        return not self.is_right(item, answer) and f"{column},{row}" in item.key.answers


@dataclass(frozen=True)
class Draw(Question):
    """Draw the row of weights. It is right where no more than a quarter of the weight is in a wrong place.

    The distance is the total variation ½ Σ |drawn − true|. Run, the drawn row is the attention row.
    """

    kind: ClassVar[str] = "draw"

    def key(self, item: Item) -> Key:
        even = item.trace.layers[item.place[0]].allowed(item.place[1], rows=[item.place[2]])[0]
        margin = distance(item.row, even / even.sum()) - DRAWN
        if margin <= 0:
            raise MhaError(
                "The row of {token} is nearly even, so that an even row would be right, too.",
                token=item.queries[item.place[2]],
            )
        return Key((written_row(item.row),), margin)

    def check(self, item: Item, answer: str) -> None:
        read_row(answer, len(item.words))

    def is_right(self, item: Item, answer: str) -> bool:
        _ = item.key  # it says where the question is ambiguous
        return distance(read_row(answer, len(item.words)), item.row) <= DRAWN

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        layer, head, token = item.place
        row = read_row(answer, len(item.words))
        return item.scene, [Weights(values=row, heads=head, rows=token, layer=layer)]


@dataclass(frozen=True)
class Order(Question):
    """Put the heads of the scene in order, the largest first, by a measure of the token's row.

    "weight" is the weight on the looked-at word, "entropy" how spread out the row is, in nats, "effect" how
    much of the answer's probability is gone without the head. Run, the head that was put first is switched
    off.
    """

    kind: ClassVar[str] = "order"
    by: str = "weight"

    MEASURES: ClassVar[dict[str, float]] = {"weight": 0.1, "entropy": 0.2, "effect": 0.1}  # least gaps

    def __post_init__(self) -> None:
        one_of("by", self.by, self.MEASURES)

    def heads(self, item: Item) -> tuple[int, ...]:
        """The heads to put in order, from 1: those that the scene draws. Raises `MhaError` for too few."""
        n_heads = item.trace.layers[item.place[0]].n_heads
        named = [as_number(one) for one in item.scene.focus.heads.split(",") if one]
        heads = tuple(dict.fromkeys(one for one in named if one and one <= n_heads))
        if not 2 <= len(heads) <= MAX_HEADS:
            raise MhaError(
                "An order has 2 to {limit} heads; the scene names {count}, as in heads=1,2,3.",
                limit=MAX_HEADS,
                count=len(heads),
            )
        return heads

    def key(self, item: Item) -> Key:
        heads = self.heads(item)
        values = {head: self.measure(item, head - 1) for head in heads}
        ordered = sorted(heads, key=values.__getitem__, reverse=True)
        margin = min(values[one] - values[other] for one, other in pairwise(ordered))
        if margin < self.MEASURES[self.by]:
            raise MhaError("Two of the heads are too close to each other to be put in order.")
        return Key((",".join(map(str, ordered)),), margin)

    def measure(self, item: Item, head: int) -> float:
        """The number of a head, from 0, by which heads are put in order."""
        layer, _, token = item.place
        if self.by == "effect":
            answer = item.answer
            if answer is None:
                raise MhaError(
                    "This model answers nothing at the token, so that no head has an effect on it."
                )
            word, share = answer[0]
            without = item.answer_in(item.tracer(item.scene, [Output(heads=head, layer=layer)]))
            return share - dict(without or ()).get(word, 0.0)
        row = item.trace.layers[layer].weights(head, rows=[token])[0]
        if self.by == "weight":
            return float(row[item.looked_at])
        positive = row[row > 0]
        return float(-(positive * np.log(positive)).sum())

    def check(self, item: Item, answer: str) -> None:
        if sorted(answer.split(",")) != sorted(map(str, self.heads(item))):
            raise MhaError(
                "An order names each of the heads {heads} once, as 3,1,2; got {answer}.",
                heads=listed(self.heads(item), "and"),
                answer=shown(answer),
            )

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        first = int(answer.partition(",")[0]) - 1
        return item.scene, [Output(heads=first, layer=item.place[0])]

    def misreads(self, item: Item, answer: str) -> bool:
        """Whether the smallest was put first, of more than two: of two that is the one wrong answer."""
        heads = answer.split(",")
        return len(heads) > 2 and ",".join(reversed(heads)) in item.key.answers


@dataclass(frozen=True)
class Choose(Question):
    """Which of two pictures of the head's weights is the scene's? The other is of the scene `other`, a link.

    Run, the model shows the scene of the chosen picture.
    """

    kind: ClassVar[str] = "choose"
    other: str = ""

    def key(self, item: Item) -> Key:
        own, other = (one.trace.layers[one.place[0]].weights(one.place[1]) for one in self.pictures(item))
        margin = 1.0 if own.shape != other.shape else float(np.abs(own - other).max())
        if margin < MARGIN:
            raise MhaError("The two pictures are nearly the same.")
        return Key((str(self._first(item) + 1),), margin)

    def _first(self, item: Item) -> int:
        """At which place the scene's own picture is, 0 or 1: a hash of both links decides."""
        links = f"{item.scene.link()} {self.other}"
        return blake2b(links.encode(), digest_size=1).digest()[0] % 2

    def pictures(self, item: Item) -> tuple[Item, Item]:
        """The items of both pictures, in the order in which they are shown.

        Raises `MhaError` for a link with values that cannot be.
        """
        pair = (item, replace(item, scene=scene_of(self.other)))
        return pair[::-1] if self._first(item) else pair

    def check(self, item: Item, answer: str) -> None:
        _count(answer, 2, Phrase("picture"))

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        return self.pictures(item)[int(answer) - 1].scene, ()


class Given(NamedTuple):
    """Numbers that are shown before the answer: rows with their names, under the names of their columns."""

    columns: tuple[str, ...]
    rows: dict[str, np.ndarray]  # (column,) each

    @property
    def products(self) -> np.ndarray:
        """The product of the two rows in each column. (column,)"""
        one, other = self.rows.values()
        return one * other


@dataclass(frozen=True)
class Estimate(Question):
    """A number on a line: a count is right if it is exact, any other number within a tenth of the line.

    "weight" and "score" are the weight and the scaled score of the token and the looked-at word; "row_sum" is
    what the token's row would sum to if softmax went over the whole matrix; "d_k" is the width of a head's
    keys; "cache" is how many numbers the layer keeps of each token; "concat" is the width of all heads side
    by side; "output" and "result" are the first number of the head's output, and of concat W^O, at the token.
    Run, a weight becomes the weight, and the rest of the row is scaled to fill up 1; a sum becomes that of
    the row.

    What the number follows from is shown where it is `given`, as with "output" and "result" always: then the
    number is to be computed, and right within a fiftieth of the line.
    """

    kind: ClassVar[str] = "estimate"
    quantity: str = "weight"
    given: bool = False

    QUANTITIES: ClassVar[tuple[str, ...]] = (
        *("weight", "score", "row_sum", "d_k", "cache", "concat", "output", "result"),
    )
    COUNTS: ClassVar[tuple[str, ...]] = ("d_k", "cache", "concat")
    GIVEN: ClassVar[tuple[str, ...]] = ("score", "weight", "output", "result")  # can be computed by hand

    def __post_init__(self) -> None:
        one_of("quantity", self.quantity, self.QUANTITIES)
        if not isinstance(self.given, bool) or (self.given and self.quantity not in self.GIVEN):
            raise MhaError(
                "given is true for a quantity that can be computed by hand, {quantities}, else false.",
                quantities=listed(self.GIVEN, "or"),
            )
        if self.quantity in ("output", "result"):
            object.__setattr__(self, "given", True)

    def shown(self, item: Item) -> Given | None:
        """The numbers to compute with; None where none are shown. Raises `MhaError` for too many."""
        if not self.given:
            return None
        layer, head, token = item.place
        of_layer = item.trace.layers[layer]
        match self.quantity:
            case "score":
                key = of_layer.k[of_layer.kv_head(head), item.looked_at]
                given = Given(_numbered(len(key)), {"q": of_layer.q[head, token], "k": key})
            case "weight":
                given = Given(item.words, {"scores": of_layer.masked(head, rows=[token])[0]})
            case "output":
                values = of_layer.v[of_layer.kv_head(head), :, 0]
                given = Given(item.words, {"weights": item.row, "values": values})
            case _:
                concat, w_o = of_layer.concat(rows=[token])[0], of_layer.projections.w_o
                if w_o is None:
                    raise MhaError("The W^O of this layer is not known.")
                given = Given(_numbered(len(concat)), {"concat": concat, "w_o": w_o[:, 0].numpy()})
        if len(given.columns) > MAX_GIVEN:
            raise MhaError(
                "To compute with, a screen shows at most {limit} numbers in a row; here there are {count}.",
                limit=MAX_GIVEN,
                count=len(given.columns),
            )
        return given

    def number(self, item: Item) -> float:
        layer, head, token = item.place
        of_layer = item.trace.layers[layer]
        match self.quantity:
            case "weight":
                return float(item.row[item.looked_at])
            case "score":
                return float(of_layer.scaled(head, rows=[token], keys=[item.looked_at])[0, 0])
            case "row_sum":
                log_sums = of_layer.log_sum_exp(head)
                sums = np.exp(log_sums - log_sums.max())
                return float(sums[token] / sums.sum())
            case "d_k":
                return float(of_layer.d_k)
            case "concat":
                return float(of_layer.n_heads * of_layer.d_v)
            case "output" | "result":
                given = self.shown(item)
                assert given is not None
                return float(given.products.sum())
            case _:
                latent = of_layer.about.latent  # kept in place of keys and values
                if latent is not None:
                    return float(latent.kv_rank + (latent.rotary_width or 0))
                return float(of_layer.n_kv_heads * (of_layer.d_k + of_layer.d_v))

    def line(self, item: Item) -> tuple[float, float]:
        """Both ends of the line. They follow from sizes, for a score from all scores of the head."""
        of_layer = item.trace.layers[item.place[0]]
        d_model = of_layer.d_model or of_layer.n_heads * of_layer.d_v
        match self.quantity:
            case "weight" | "row_sum":
                return 0.0, 1.0
            case "score":
                scores = of_layer.scaled(item.place[1])
                end = _round_up(float(np.abs(scores[np.isfinite(scores)]).max()))
                return -end, end
            case "output" | "result":
                given = self.shown(item)
                assert given is not None
                end = _round_up(float(np.abs(given.products).sum()))
                return -end, end
            case "d_k":
                return 0.0, float(d_model)
            case _:
                return 0.0, float(3 * d_model)

    def key(self, item: Item) -> Key:
        (low, high), number = self.line(item), self.number(item)
        self.shown(item)  # it says where that would be too much
        if not math.isfinite(number):
            raise MhaError("The cell is masked: it has no score.")
        near = COMPUTED if self.given else ON_LINE
        margin = abs(number - (low + high) / 2) / (high - low) - near
        if margin <= 0:
            raise MhaError("The number is close to the middle of the line, so that a guess would be right.")
        return Key((f"{number:.4g}",), margin)

    def check(self, item: Item, answer: str) -> None:
        self._read(item, answer)

    def _read(self, item: Item, answer: str) -> float:
        low, high = self.line(item)
        number = float(answer) if NUMBER.fullmatch(answer) else math.nan
        if not low <= number <= high:
            raise MhaError(
                "The number is from {low:g} to {high:g}; got {answer}.",
                low=low,
                high=high,
                answer=shown(answer),
            )
        return number

    def is_right(self, item: Item, answer: str) -> bool:
        _ = item.key  # it says where the question is ambiguous
        return abs(self._read(item, answer) - self.number(item)) <= self.tolerance(item)

    def tolerance(self, item: Item) -> float:
        """The largest distance between a right estimate and the number; 0 for a count."""
        low, high = self.line(item)
        near = COMPUTED if self.given else 0.0 if self.quantity in self.COUNTS else ON_LINE
        return near * (high - low)

    def executed(self, item: Item, answer: str) -> tuple[Scene | None, Sequence[Edit]]:
        number = self._read(item, answer)
        if self.quantity not in ("weight", "row_sum"):
            return None, ()
        layer, head, token = item.place
        row = item.row.astype(float)
        if self.quantity == "row_sum":
            row = row * number
        else:
            rest = row.sum() - row[item.looked_at]
            row = row * ((1 - number) / rest if rest else 0.0)
            row[item.looked_at] = number
        return item.scene, [Weights(values=row, heads=head, rows=token, layer=layer)]


@dataclass(frozen=True)
class Flip(Question):
    """Which one change flips the model's answer at the token? It is built from the kinds in `changes`.

    "cut" hides one word from another in all heads and layers, "off" switches a head off. Every single change
    of these kinds is tried for the key: it is ambiguous where none flips the answer, or more than half do.
    """

    kind: ClassVar[str] = "flip"
    changes: tuple[str, ...] = ("cut", "off")

    KINDS: ClassVar[tuple[str, ...]] = ("cut", "off")

    def __post_init__(self) -> None:
        for kind in self.changes:
            one_of("changes", kind, self.KINDS)

    def candidates(self, item: Item) -> list[Edit]:
        """Each head off, and each word hidden from the token."""
        token = item.place[2]
        cuts = [Hide(rows=token, keys=key) for key in range(len(item.words))]
        offs = [
            Output(heads=head, layer=at)
            for at, layer in enumerate(item.trace.layers)
            for head in range(layer.n_heads)
        ]
        return [*(cuts if "cut" in self.changes else []), *(offs if "off" in self.changes else [])]

    def key(self, item: Item) -> Key:
        answer, candidates = item.answer, self.candidates(item)
        if answer is None:
            raise MhaError("This model answers nothing at the token, so that no change flips its answer.")
        flips = [change for change in candidates if self._flips(item, [change])]
        if not 0 < len(flips) <= len(candidates) / 2:
            raise MhaError(
                "{count} of {total} changes flip the answer: it can be asked where at least one does, and at "
                "most half of them.",
                count=len(flips),
                total=len(candidates),
            )
        return Key(tuple(map(changes.text, flips)), 1 - len(flips) / len(candidates))

    def _flips(self, item: Item, edits: Sequence[Edit]) -> bool:
        now, own = item.answer_in(item.tracer(item.scene, edits)), item.answer
        return now is not None and own is not None and now[0][0] != own[0][0]

    def _read(self, item: Item, answer: str) -> Edit:
        chosen, _ = changes.read(answer)
        edits = changes.edits_of(chosen)
        if len(edits) != 1 or changes.text(edits[0]) != answer or not self._is_possible(item, edits[0]):
            raise MhaError(
                "The answer is one change of the kind {kinds}, as cut,from=9,to=3, to words and heads of "
                "this sentence; got {answer}.",
                kinds=listed(self.changes, "or"),
                answer=shown(answer),
            )
        return edits[0]

    def _is_possible(self, item: Item, edit: Edit) -> bool:
        """Whether the edit is one cell in all heads, or one head, of those that the scene has."""
        layers = item.trace.layers
        match edit:
            case Hide(layer=None, heads=None, rows=(int(row),), keys=(int(key),)):
                return "cut" in self.changes and row < len(item.queries) and key < len(item.words)
            case Output(layer=int(at), heads=(int(head),)):
                return "off" in self.changes and at < len(layers) and head < layers[at].n_heads
            case _:
                return False

    def check(self, item: Item, answer: str) -> None:
        self._read(item, answer)

    def is_right(self, item: Item, answer: str) -> bool:
        _ = item.key
        return self._flips(item, [self._read(item, answer)])

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        return item.scene, [self._read(item, answer)]


@dataclass(frozen=True)
class Find(Question):
    """A sentence in which a `condition` holds, which is scored by running it.

    "other_answer": one word of the scene's sentence is another, and the model's answer at the token is a word
    in another place.
    "disagrees": the head looks most at another word than the model answers. "unsure": no answer at the token
    has a probability of 0.3.
    """

    kind: ClassVar[str] = "find"
    condition: str = "other_answer"

    CONDITIONS: ClassVar[tuple[str, ...]] = ("other_answer", "disagrees", "unsure")

    def __post_init__(self) -> None:
        one_of("condition", self.condition, self.CONDITIONS)

    def key(self, item: Item) -> Key:
        """Raises `MhaError` where the condition holds in none or in all of the sentences that are tried."""
        if item.answer is None:
            raise MhaError("This model answers nothing at the token.")
        tried = found = 0
        for text in self.sentences(item):
            tried += 1
            found += self.holds(item, text)
            if 0 < found < tried:
                break
        if not 0 < found < tried:
            raise MhaError(
                "The condition holds in {found} of {tried} sentences tried: there is nothing to find.",
                tried=tried,
                found=found,
            )
        return Key((), found / tried)

    def sentences(self, item: Item) -> Iterator[str]:
        """The sentences that are tried, the item's own first."""
        is_short = self.condition == "other_answer"
        made = variants(item.scene.text, item.trace.tokens, item.place[2], one_word=is_short)
        return islice(made, MAX_TRIED)

    def holds(self, item: Item, text: str) -> bool:
        """Whether the condition holds in a text. False where it does not have the scene's token."""
        found = self.posed(item, text)
        try:
            answer = found.answer
        except MhaError:
            return False
        if answer is None:
            return False
        if self.condition == "unsure":
            return not is_known(answer)
        if self.condition == "disagrees":
            keys = found.trace.layers[found.place[0]].sides.keys
            return keys.pieces[int(found.row.argmax())].casefold() != answer[0][0].casefold()
        own, same_length = item.answer, len(item.trace.tokens) == len(found.trace.tokens)
        is_other = own is not None and answer[0][0] != own[0][0] and not self.renames(item, found)
        return is_other and same_length and self.changed(item, text) == 1

    def renames(self, item: Item, found: Item) -> bool:
        """Whether the answer in another sentence stands where the model's own stood: a word in its place."""
        places = [
            position(one.trace.tokens, one.answer[0][0]) if one.answer else None for one in (item, found)
        ]
        return places[0] is not None and places[0] == places[1]

    def changed(self, item: Item, text: str) -> int:
        """How many words of a text are other ones than those of the item in the same places."""
        pieces = item.trace.tokens.pieces, self.posed(item, text).trace.tokens.pieces
        pairs = zip_longest(*pieces, fillvalue="")
        return sum(one.casefold() != other.casefold() for one, other in pairs)

    def posed(self, item: Item, text: str) -> Item:
        """The item about the same token of another text."""
        return replace(item, scene=replace(item.scene, text=text, twin=""))

    def check(self, item: Item, answer: str) -> None:
        _check_sentence(answer)

    def is_right(self, item: Item, answer: str) -> bool:
        return self.holds(item, answer)

    def executed(self, item: Item, answer: str) -> tuple[Scene, Sequence[Edit]]:
        return self.posed(item, answer).scene, ()


@dataclass(frozen=True)
class Why(Question):
    """Why is it so? A sentence for the teacher, which is not scored."""

    kind: ClassVar[str] = "why"

    def key(self, item: Item) -> Key:
        return Key((), math.inf)

    def check(self, item: Item, answer: str) -> None:
        _check_sentence(answer)

    def is_right(self, item: Item, answer: str) -> None:
        return None

    def executed(self, item: Item, answer: str) -> tuple[None, Sequence[Edit]]:
        return None, ()


KINDS: dict[str, type[Question]] = {
    kind.kind: kind for kind in (Point, Cell, Draw, Order, Choose, Estimate, Flip, Find, Why)
}


def scene_of(link: str) -> Scene:
    """The scene of a link. Raises `MhaError` for the first value that cannot be."""
    scene, refused = Scene.of_link(link)
    for one in refused:
        raise MhaError("{name}={value}: {reason}.", name=one.name, value=shown(one.value), reason=one.reason)
    return scene


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The total variation between two rows of weights, ½ Σ |one − other|: from 0 to 1."""
    return float(np.abs(np.asarray(one, float) - np.asarray(other, float)).sum() / 2)


def in_words(item: Item | None, answer: str) -> str:
    """An answer in words of its sentence, as "animal" or "animal 60%, street 40%", if it is about words."""
    if item is None:
        return answer
    try:
        match item.question.kind:
            case "point":
                return item.words[int(answer) - 1]
            case "cell":
                row, column = (int(one) - 1 for one in answer.split(","))
                return f"{item.queries[row]} → {item.words[column]}"
            case "draw":
                shares = np.round(100 * np.array(read_row(answer, len(item.words)))).astype(int)
                return ", ".join(
                    f"{item.words[at]} {shares[at]}%" for at in np.argsort(-shares) if shares[at]
                )
    except (MhaError, ValueError, IndexError):  # it was no answer, which says itself
        pass
    return answer


def read_row(answer: str, n_key: int) -> np.ndarray:
    """The row of weights of ``3:60,7:40``, in per cent with words from 1. (key,)

    Raises `MhaError` where that is no row, or where it does not sum to 100.
    """
    row = np.zeros(n_key)
    wrong = MhaError(
        "A row of weights names words from 1 to {n_key} with whole per cents that sum to 100, as in "
        "3:60,7:40; got {answer}.",
        n_key=n_key,
        answer=shown(answer),
    )
    for part in answer.split(",") if len(answer) <= MAX_TEXT else [""]:
        at, _, share = part.partition(":")
        number, percent = as_number(at), as_number(share)
        if not number or number > n_key or percent is None or percent > 100 or row[number - 1]:
            raise wrong
        row[number - 1] = percent / 100
    if not math.isclose(row.sum(), 1.0, abs_tol=1e-6):
        raise wrong
    return row


def written_row(row: np.ndarray) -> str:
    """The row as ``3:60,7:40``, in whole per cents that sum to 100: the largest remainders are rounded up."""
    percent = np.asarray(row, float) / float(np.sum(row)) * 100
    whole = np.floor(percent).astype(int)
    missing = 100 - int(whole.sum())
    for at in np.argsort(whole - percent, kind="stable")[:missing]:
        whole[at] += 1
    return ",".join(f"{at + 1}:{share}" for at, share in enumerate(whole.tolist()) if share)


def _largest(item: Item) -> Key:
    """The largest weight of the token's row. Raises `MhaError` where another one is as large."""
    order = np.argsort(-item.row, kind="stable")
    first, second = order[0], order[min(1, len(order) - 1)]
    margin = float(item.row[first] - item.row[second])
    if margin < MARGIN:
        raise MhaError(
            "{token} looks at {first} with {one:.2f} and at {second} with {two:.2f}: that is too close.",
            token=item.queries[item.place[2]],
            first=item.words[first],
            second=item.words[second],
            one=float(item.row[first]),
            two=float(item.row[second]),
        )
    return Key((str(first + 1),), margin)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, count + 1)))


def _looking(item: Item, row: int, key: int) -> Weights:
    """The edit by which a row of the head looks at one word alone."""
    layer, head, _ = item.place
    values = np.zeros(len(item.words))
    values[key] = 1.0
    return Weights(values=values, heads=head, rows=row, layer=layer)


def _count(answer: str, count: int, what: Phrase) -> None:
    number = as_number(answer)
    if not number or number > count or answer != str(number):
        raise MhaError(
            "The answer is the number of a {what} from 1 to {count}; got {answer}.",
            what=what,
            count=count,
            answer=shown(answer),
        )


def _check_sentence(answer: str) -> None:
    if not answer.strip() or len(answer) > MAX_TEXT:
        raise MhaError(
            "The answer is a sentence of at most {limit} characters; got {count}.",
            limit=MAX_TEXT,
            count=len(answer),
        )


def _round_up(number: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, … from a number on."""
    power = 10.0 ** math.floor(math.log10(number)) if number > 0 else 1.0
    return next(step * power for step in (1, 2, 5, 10) if step * power >= number)
