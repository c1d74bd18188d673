"""After the lock: the answer run in the model beside the model's own, the outcome, and links onward."""

from collections.abc import Callable

from mha_core import MhaError
from mha_core.lessons.item import Item, Question, Run
from mha_core.lessons.question import Choose, Find
from mha_core.scene.scene import Scene
from pages._kit import cell_path, components, pair
from pages._kit.text import after_link, t
from pages.learn._lessons import interpretation, items, place, texts
from pages.learn._lessons.place import Place

KEY = "lesson_reveal"  # of the component
HEIGHT = 220  # pixels until it is drawn
# The matrices of a question that is not about one row of weights, by its kind or its quantity.
MATRICES = {
    "cell": ("weights",),
    "choose": ("weights",),
    "score": ("scaled",),
    "d_k": ("q", "k"),
    "cache": ("k", "v"),
    "concat": ("concat",),
    "output": ("output",),
    "result": ("concat", "result"),
}

_reveal = components.component(KEY, "lesson/reveal.js", "lesson/lesson.css", box="reveal")


def show(here: Place, item: Item, answer: str, *, on_act: Callable[[], None]) -> None:
    run = item.run(answer)
    projected = place.projected()
    sides, matrices = sides_of(item, answer, run), matrices_of(item.question)
    if not projected:
        if not matrices:
            pair.view(sides, key="lesson_view", compact=True)
        elif len(sides) == 1:
            pair.show_beside(sides[0], matrices, key="lesson_view")
        else:
            pair.show_matrices(sides, matrices, key="lesson_view")
    right = items.is_right(item, answer)
    like = here.like > 0
    another = t("lessons.another_like") if like else t("lessons.like")
    end = here.number == len(here.lesson.screens)
    paced = here.room is not None and here.room.pace.screen is not None
    _reveal(
        key=KEY,
        data={
            "sides": [row_of(side) for side in sides] if projected and shows_weights(item.question) else [],
            "sentences": interpretation.sentences(item, answer, run),
            "right": right,
            "mark": "" if right is None else t("lessons.right") if right else t("lessons.other"),
            "notice": "" if like else texts.notice(here),
            "look": looks(item.scene, getattr(item.question, "quantity", "")),
            "like": like,
            "next": here.number + 1,
            "projector": projected,
            "texts": {
                "again": t("lessons.again") if like or here.room is None else "",
                "like": another if items.may_have_like(item) else "",
                "back": t("lessons.back"),
                "next": "" if paced else t("lessons.finish") if end else t("lessons.next"),
                "look": t("lessons.look"),
            },
        },
        height=HEIGHT,
        on_acted_change=on_act,
    )
    if here.screen.light and not (like or projected):
        layer, head, query = item.place
        key = item.looked_at if item.scene.focus.key_token else None
        cell_path.draw(run.own, layer=layer, head=head, query=query, key=key, name="lesson_path")


def matrices_of(question: Question) -> tuple[str, ...]:
    """The whole matrices that are drawn after an answer; none where the head view draws rows of weights.

    Only matrices that were asked about are drawn: weights could be the answer to a later question.
    """
    return MATRICES.get(getattr(question, "quantity", question.kind), ())


def shows_weights(question: Question) -> bool:
    return matrices_of(question) in ((), ("weights",))


def looks(scene: Scene, quantity: str = "") -> list[dict[str, str]]:
    """Links to the scene on pages where one can look around in it, for a cache where it is seen to grow."""
    pages = {"?": t("heads.title"), "what-if?": t("what_if.title")}
    if quantity == "cache":
        pages["steps?steps_view=decode&"] = t("steps_view.decode")
    link = scene.link().rpartition("?")[2].partition("#")[0]
    return [{"text": name, "href": f"./{page}{link}{after_link()}"} for page, name in pages.items()]


def sides_of(item: Item, answer: str, run: Run) -> list[pair.PairSide]:
    """The run of the answer and the model's own; this alone where the answer runs nothing."""
    layer, head, query = item.place
    question = item.question
    if isinstance(question, Choose):
        pictures = enumerate(question.pictures(item), start=1)
        return [pair.PairSide(_of_picture(nth, answer), one.trace, *one.place) for nth, one in pictures]
    heading = t("lessons.side_lesson") if isinstance(question, Find) else t("lessons.side_own")
    own = pair.PairSide(heading, run.own, layer, head, query, item.asked)
    if run.executed is None:
        return [own]
    at, kind = query, question.kind
    if kind == "cell":
        at = int(answer.partition(",")[0]) - 1
    elif isinstance(question, Find):
        try:
            at = question.posed(item, answer).place[2]
        except MhaError:  # its sentence does not have the word
            at = min(query, run.executed.layers[layer].n_query - 1)
    heading = t(f"lessons.side_{kind}") if kind in ("draw", "find") else t("lessons.side_other")
    return [pair.PairSide(heading, run.executed, layer, head, at, item.asked), own]


def _of_picture(number: int, answer: str) -> str:
    if str(number) == answer:
        return t("lessons.side_chosen", number=number)
    return t("lessons.js_picture", number=number)


def row_of(side: pair.PairSide) -> dict[str, object]:
    """A row as words with their weights, which a class can read from the last row."""
    layer = side.trace.layers[side.layer]
    return {
        "heading": side.heading,
        "words": layer.sides.keys.labels,
        "weights": layer.weights(side.head, rows=[side.query])[0].tolist(),
        "query": side.query if layer.sides.queries == layer.sides.keys else None,
    }
