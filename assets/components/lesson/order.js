// Put heads in order: a list whose items are dragged, or moved by the arrow keys or buttons. Answer: ``3,1,2``.
import { claim, elementIn, make, makeButton, targetOf } from "../page/elements.js";
import { arrowOf } from "../page/radios.js";
import { fill } from "../page/wording.js";
import { lookOf } from "../pictures/colours.js";

/** @typedef {import("./words.js").QuestionSentence & { kind: "order", heads: number[] }} OrderQuestion heads from 1 */

/** @param {import("./screen.js").Asked<OrderQuestion>} asked */
export function order({ root, question, texts, answer, change }) {
  const palette = getComputedStyle(root).getPropertyValue("--st-chart-categorical-colors").split(",");
  const before = (answer ?? "").split(",").map(Number);
  const isOrder = question.heads.every((head) => before.includes(head));
  const list = make("ol", "heads", ...(isOrder ? before : question.heads).map(itemOf));
  list.ariaLabel = texts.heads;
  const heads = () => [...list.children].map((item) => Number(/** @type {HTMLElement} */ (item).dataset.head));
  number();
  // The order in which they stand is an answer, too.
  queueMicrotask(() => change(heads().join(), ""));

  /** @param {number} head */
  function itemOf(head) {
    const up = makeButton("↑", "step", () => move(item, -1));
    const down = makeButton("↓", "step", () => move(item, 1));
    up.ariaLabel = fill(texts.up, { head });
    down.ariaLabel = fill(texts.down, { head });
    const name = make("span", "name", fill(texts.head, { head }));
    const item = make("li", "head", make("span", "number"), name, up, down);
    Object.assign(item.dataset, { head, locks: "" });
    item.tabIndex = 0;
    item.style.setProperty("--head", lookOf(palette, head - 1).colour);
    item.addEventListener("keydown", (event) => {
      const [by] = arrowOf(event) ?? [0];
      if (!by || event.target !== item) return;
      claim(event);
      move(item, by);
    });
    item.addEventListener("pointerdown", (event) => {
      if (!targetOf(event)?.closest("button")) grab(item, event);
    });
    return item;
  }

  /** @param {HTMLElement} item @param {number} by */
  function move(item, by) {
    pass(item, by);
    moved(item);
  }

  // One place up or down. The other one is moved: what is put elsewhere loses the pointer and the keyboard.
  /** @param {HTMLElement} item @param {number} by */
  function pass(item, by) {
    const other = by < 0 ? item.previousElementSibling : item.nextElementSibling;
    if (!other) return;
    if (by < 0) item.after(other);
    else item.before(other);
  }

  /** @param {HTMLElement} item @param {PointerEvent} event */
  function grab(item, event) {
    item.setPointerCapture(event.pointerId);
    item.classList.add("dragged");
    /** @param {PointerEvent} event */
    const drag = ({ clientY }) => {
      /** @param {Element | null} other */
      const over = (other) => (other ? clientY - middleAcross(other) : 0);
      while (over(item.previousElementSibling) < 0) pass(item, -1);
      while (over(item.nextElementSibling) > 0) pass(item, 1);
      number();
    };
    item.addEventListener("pointermove", drag);
    const end = () => {
      item.removeEventListener("pointermove", drag);
      item.classList.remove("dragged");
      moved(item);
    };
    for (const act of ["pointerup", "pointercancel"]) item.addEventListener(act, end, { once: true });
  }

  function number() {
    [...list.children].forEach((item, at) => {
      elementIn(item, ".number").textContent = `${at + 1}.`;
    });
  }

  /** @param {HTMLElement} item */
  function moved(item) {
    number();
    const head = Number(item.dataset.head);
    change(heads().join(), fill(texts.moved, { head, place: heads().indexOf(head) + 1 }));
  }
  return list;
}

/** @param {Element} element */
function middleAcross(element) {
  const { top, height } = element.getBoundingClientRect();
  return top + height / 2;
}
