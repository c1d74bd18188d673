"""A student in front of a screen of a lesson: answers it by mouse or by keys, and reads what comes of it.

What is done does not depend on the language of the page. `leaks` says what of the truth is there before the
answer is locked.
"""

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
from google.protobuf.message import DecodeError
from playwright.sync_api import TimeoutError
from streamlit.proto.BidiComponent_pb2 import BidiComponent
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from mha_core.lessons.item import Item
from mha_core.lessons.question import DRAWN, distance, read_row, written_row
from mha_core.scene import changes

# What the browser is told of every question, and besides of one of each kind.
FIELDS = {"kind", "words", "queries", "query"}
MORE_FIELDS = {
    "order": {"heads"},
    "choose": {"pictures"},
    "estimate": {"low", "high", "quantity", "key", "given"},
    "flip": {"changes", "heads_of_layers"},
    "find": {"text"},
}
# What it is told of a screen before the answer.
SCREEN = {
    *("lesson", "number", "like", "code", "answered", "title", "place", "ask", "problem", "projector"),
    *("cards", "focus", "texts", "question", "hints", "more_hints", "room"),
}
BLOB = b"mha0"  # with which the numbers of a head view begin
LEAST_WEIGHT = 0.05  # of a row: less is in any message by chance
# The page with what components draw, as a source.
SOURCE = """() => {
    const inside = (root) => [root.innerHTML, ...[...root.querySelectorAll('*')]
        .flatMap((e) => (e.shadowRoot ? inside(e.shadowRoot) : []))];
    return inside(document.documentElement).join('');
}"""
# Which of several elements the keyboard is at, or -1.
WHICH = "all => all.indexOf(all[0].getRootNode().activeElement)"
# Whether the keyboard is at an element, also at one that a component draws.
AT = """(selector) => {
    let active = document.activeElement;
    while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
    return active?.matches(selector) ?? false;
}"""
MAX_TABS = 90  # from the top of a page to anything on it
BESIDE = "[class*=st-key-lesson_view]"  # what is drawn beside an answer


class Student:
    """Acts on a page of a lesson, by mouse or by `keys`, and counts the acts.

    A click, a drag, a typed sentence, and a key that chooses or locks is one act each, however many arrow
    keys lead there.
    """

    def __init__(self, page, address: str, settle: Callable[[object], None], *, keys: bool = False):
        self.page, self.address, self.settle, self.by_keys, self.acts = page, address, settle, keys, 0
        self.heard: list[bytes] = []  # what the server has sent to this screen
        self.fetched: list = []
        self.listeners = {"response": self._fetch, "websocket": self._connect}
        for event, listener in self.listeners.items():
            page.on(event, listener)

    def leave(self) -> None:
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)

    def _connect(self, socket) -> None:
        socket.on("framereceived", self._hear)

    def _hear(self, frame: bytes | str) -> None:
        self.heard.append(frame if isinstance(frame, bytes) else frame.encode())

    def _fetch(self, response) -> None:
        if response.request.resource_type in ("fetch", "xhr", "eventsource", "media"):
            self.fetched.append(response)

    def open(self, link: str) -> None:
        """Open a screen: ``heads&screen=5``. Fails where its question cannot be asked."""
        self._forget()
        self.page.goto(f"{self.address}/lessons?lesson={link}")
        self.page.locator(".act, .refusal").first.wait_for()
        self.settle(self.page)
        assert self.page.locator(".refusal").count() == 0, self.page.locator(".refusal").inner_text()

    def _forget(self) -> None:
        self.heard.clear()
        self.fetched.clear()

    # Acts.

    def answer(self, item: Item, answer: str) -> str:
        """Make an answer, without locking it; returns it as it came out, as of a row that was drawn."""
        return getattr(self, f"_{item.question.kind}")(item, answer) or answer

    def lock(self) -> None:
        if self.by_keys:
            if not self.page.evaluate(
                AT, "[aria-checked=true], [role=slider], [aria-selected=true], [data-locks], textarea"
            ):
                self.reach(".lock")
            self.page.keyboard.press("Enter")
        else:
            self.page.locator(".st-key-lesson .lock").click()
        self.acts += 1
        self.page.locator(".reveal .told p").first.wait_for()
        self._settle()

    def _settle(self) -> None:
        self.settle(self.page)
        assert not self.has_lost_the_keyboard(), "the keyboard has lost its place"

    def has_lost_the_keyboard(self) -> bool:
        return self.by_keys and self.page.evaluate(AT, "body")

    def again(self) -> None:
        self._press(".reveal .hint")
        self.page.locator(".act").wait_for()
        self._settle()

    def go_on(self) -> None:
        """To the next screen, which is the end after the last one."""
        self._forget()
        if self.by_keys:
            self.page.evaluate("document.activeElement?.blur()")
            self.page.keyboard.press("n")
            self.acts += 1
        else:
            self._press(".reveal .lock")
        self.page.locator(".reveal").wait_for(state="detached")
        self.settle(self.page)

    def _press(self, selector: str) -> None:
        if self.by_keys:
            self.reach(selector)
            self.page.keyboard.press("Enter")
        else:
            self.page.locator(selector).first.click()
        self.acts += 1

    def reach(self, selector: str) -> None:
        """Press Tab until the keyboard is there."""
        for _ in range(MAX_TABS):
            if self.page.evaluate(AT, selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{MAX_TABS} tabs do not lead to {selector}")

    def _arrows(self, count: int, back: str = "ArrowLeft", onward: str = "ArrowRight") -> None:
        for _ in range(abs(count)):
            self.page.keyboard.press(onward if count > 0 else back)

    def _choose_of(self, selector: str, to: int) -> None:
        """Choose one of several by a click, or by the arrow keys."""
        self.acts += 1
        ones = self.page.locator(selector)
        if not self.by_keys:
            ones.nth(to).click()
            return
        self.reach(selector)
        now = ones.evaluate_all(WHICH)
        if now == to:
            self.page.keyboard.press("Space")
        self._arrows(to - now)

    def _point(self, item: Item, answer: str) -> None:
        self._choose_of(".act .words .word", int(answer) - 1)

    def _choose(self, item: Item, answer: str) -> None:
        self._choose_of(".act .picture", int(answer) - 1)

    def _cell(self, item: Item, answer: str) -> None:
        row, column = (int(one) - 1 for one in answer.split(","))
        self.acts += 1
        if not self.by_keys:
            self.page.locator(f".act td[data-row='{row}'][data-column='{column}']").click()
            return
        self.reach(".act td")
        read = "all => Object.values({ ...all[0].getRootNode().activeElement.dataset }).map(Number)"
        now = self.page.locator(".act td").evaluate_all(read)
        if now == [row, column]:
            self._arrows(1)
            self._arrows(-1)
        self._arrows(row - now[0], "ArrowUp", "ArrowDown")
        self._arrows(column - now[1])

    def _draw(self, item: Item, answer: str) -> str:
        """Move the bars, the largest first, until the row is near enough; the others give way."""
        wanted = read_row(answer, len(item.words))
        for at in [*np.argsort(-wanted)] * 2:
            drawn = self._row(item)
            if distance(drawn, wanted) <= 0.8 * DRAWN:
                break
            if abs(drawn[at] - wanted[at]) > 0.04:
                self.acts += 1
                (self._press_bar if self.by_keys else self._drag_bar)(int(at), round(100 * wanted[at]))
        return written_row(self._row(item))

    def _row(self, item: Item) -> np.ndarray:
        shares = self.page.locator(".bar .track").evaluate_all("all => all.map((one) => +one.ariaValueNow)")
        return np.array(shares) / 100

    def _drag_bar(self, at: int, share: int) -> None:
        bar = self.page.locator(".bar .track").nth(at)
        bar.scroll_into_view_if_needed()
        box = bar.bounding_box()
        beside = self.page.locator(".bars.beside").count() > 0
        now = int(bar.get_attribute("aria-valuenow"))
        for nth, one in enumerate((now, (now + share) / 2, share)):
            if beside:
                self.page.mouse.move(box["x"] + box["width"] * one / 100, box["y"] + box["height"] / 2)
            else:
                x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] * (1 - one / 100)
                self.page.mouse.move(x, min(max(y, box["y"] + 1), box["y"] + box["height"] - 1))
            if nth == 0:
                self.page.mouse.down()
        self.page.mouse.up()

    def _press_bar(self, at: int, share: int) -> None:
        self.reach(".bar .track")
        self._arrows(at - self.page.locator(".bar .track").evaluate_all(WHICH))
        self.page.keyboard.press("End" if share > 50 else "Home")
        steps = round(min(share, 100 - share) / 5)
        self._arrows(-steps if share > 50 else steps, "ArrowDown", "ArrowUp")

    def _order(self, item: Item, answer: str) -> None:
        for place, head in enumerate(answer.split(",")):
            heads = self.page.locator("li.head").evaluate_all("all => all.map((one) => one.dataset.head)")
            if heads[place] == head:
                continue
            self.acts += 1
            one = f"li.head[data-head='{head}']"
            if self.by_keys:
                self.reach(one)
                self._arrows(place - heads.index(head), "ArrowUp", "ArrowDown")
            else:
                there = self.page.locator("li.head").nth(place).bounding_box()
                self.page.locator(f"{one} .name").hover()
                self.page.mouse.down()
                self.page.mouse.move(there["x"] + there["width"] / 2, there["y"] + 3, steps=8)
                self.page.mouse.up()

    def _estimate(self, item: Item, answer: str) -> str:
        low, high = item.question.line(item)
        self.acts += 1
        line = self.page.locator(".line input")
        if self.by_keys:
            self._press_line(line, float(answer), low, high)
        else:
            box = line.bounding_box()
            knob = 16  # pixels of the handle, whose middle is the number
            x = box["x"] + knob / 2 + (box["width"] - knob) * (float(answer) - low) / (high - low)
            self.page.mouse.click(x, box["y"] + box["height"] / 2)
        return self.page.locator(".line output").inner_text().replace("−", "-")

    def _press_line(self, line, number: float, low: float, high: float) -> None:
        """Go to the number from the nearer end."""
        self.reach(".line input")
        is_low = number - low < high - number
        steps = round(min(number - low, high - number) / float(line.get_attribute("step")))
        end, onward = ("Home", 1) if is_low else ("End", -1)
        self.page.keyboard.press(end)
        self._arrows(onward * steps)
        if steps == 0:  # where the handle had not moved
            self._arrows(onward)
            self.page.keyboard.press(end)

    def _flip(self, item: Item, answer: str) -> None:
        change = changes.values_of(changes.read(answer)[0][0])
        if "from" not in change:
            place = f".switch:nth-child({change['layer']}) .number:nth-child({change['head']})"
            self.acts += 1
            if self.by_keys:
                self.reach(place)
                self.page.keyboard.press("Space")
            else:
                self.page.locator(place).click()
            return
        if change["from"] != item.place[2] + 1:
            self._choose_of(".words:not(.struck) .word", change["from"] - 1)
        self._choose_of(".words.struck .word", change["to"] - 1)

    def _find(self, item: Item, answer: str) -> None:
        self.acts += 1
        field = self.page.locator(".act textarea")
        if not self.by_keys:
            field.fill(answer)
            return
        self.reach("textarea")
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(answer)

    _why = _find

    # What came of it.

    def told(self) -> list[str]:
        """The sentences, without the marks around words of another direction."""
        told = self.page.locator(".reveal .told p").all_inner_texts()
        return [re.sub("[\u2068\u2069]", "", one) for one in told]

    def mark(self) -> bool | None:
        """Whether the page says that the answer was right; None where it says nothing of it."""
        if self.page.locator(".reveal .mark").count() == 0:
            return None
        return self.page.locator(".reveal .mark.right").count() == 1

    def has_drawing(self) -> bool:
        """Whether anything is drawn beside the answer."""
        return self._comes(f"{BESIDE} canvas")

    def has_path(self) -> bool:
        """Whether the way of one number to the output is drawn."""
        return self._comes(".st-key-lesson_path svg, .st-key-lesson_path canvas")

    def _comes(self, selector: str) -> bool:
        with suppress(TimeoutError):
            self.page.locator(selector).first.wait_for()
            return True
        return False

    def leaks(self, item: Item, notice: str) -> list[str]:
        """What of the truth is on the page or has come to it, though nothing is locked yet."""
        source = self.page.evaluate(SOURCE)
        bodies = [one.body() for one in self.fetched if not one.url.endswith(".css")]
        return leaks(item, notice, source, [*self.heard, *bodies])


def leaks(item: Item, notice: str, source: str, sent: Sequence[bytes]) -> list[str]:
    """What of the truth of an item is in the source of a page or in what its browser has been sent."""
    everything = b"\n".join([*sent, source.encode()])
    components = list(_components(sent))
    found = [f"the field {one}" for one in _unknown_fields(components, item.question.kind)]
    if BLOB in everything or any(component.bytes for component in components):
        found.append("a payload of numbers")
    piece = max(re.split(r"\*+", notice), key=len)  # between words that are emphasized
    if piece and any(form in everything for form in (piece.encode(), json.dumps(piece)[1:-1].encode())):
        found.append(f"the notice: {piece}")
    for answer in item.key.answers:
        if re.search(r"[,:=]", answer) and f'"{answer}"'.encode() in everything:
            found.append(f"the key {answer}")
    read = re.sub(r"<style.*?</style>", "", source, flags=re.DOTALL)
    for number in _numbers(item):
        if any(form in everything for form in _forms(number)):
            found.append(f"the number {number:.4f}")
        if re.search(rf">[^<]*\b{number:.2f}\b", read):
            found.append(f"the number {number:.2f}, to be read")
    return found


def _components(sent: Sequence[bytes]) -> Iterator[BidiComponent]:
    """What the components of a page have been told."""
    for frame in sent:
        with suppress(DecodeError):
            yield ForwardMsg.FromString(frame).delta.new_element.bidi_component


def _unknown_fields(components: Sequence[BidiComponent], kind: str) -> list[str]:
    """Fields of what the browser is told of a screen that nobody needs before the answer."""
    unknown = []
    for component in components:
        if component.component_name == "headscope_lesson":
            (data,) = json.loads(component.json)
            unknown += data.keys() - SCREEN
            unknown += data.get("question", {}).keys() - FIELDS - MORE_FIELDS.get(kind, set())
    return unknown


def _numbers(item: Item) -> list[float]:
    """The numbers that only the answer shows."""
    question = item.question
    if question.kind == "choose":  # it shows the weights of two pictures
        return []
    if question.kind == "estimate":
        return [question.number(item)] if question.quantity in ("weight", "score", "row_sum") else []
    if question.kind == "order":
        return [question.measure(item, head - 1) for head in question.heads(item)]
    return [float(weight) for weight in item.row if weight >= LEAST_WEIGHT]


def _forms(number: float) -> list[bytes]:
    """How a message may have a number; of a whole one it may have these by chance."""
    if number == round(number, 2):
        return []
    return [f"{number:.6f}"[:-2].encode(), struct.pack("<f", number), struct.pack("<d", number)]
