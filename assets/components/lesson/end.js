// The end of a lesson: what one can do now, the question on paper, its scenes to look around in, and what comes next.
import { actInstead, elementIn, make, makeButton, makeLink } from "../page/elements.js";
import { fitHeight } from "../streamlit/adapter.js";
import { formatted } from "./formatted.js";
import { listen, losesKeyboard } from "./keys.js";
import { keepProgress } from "./progress.js";
import { receiptOf } from "./receipt.js";

/** @typedef {{ text: string, href: string }} TextLink */

/**
 * @typedef {object} EndPage
 * @property {import("./progress.js").LessonName} lesson
 * @property {number} number after the last screen
 * @property {string} heading
 * @property {string[]} can a title, and texts
 * @property {string[]} paper
 * @property {string} around
 * @property {{ ask: string, answered: boolean, links: TextLink[], own?: string, right?: boolean | null }[]} screens
 * with one's own answer in words, or that there is none
 * @property {string} answer_it what the way to a screen without an answer is called
 * @property {(TextLink & { name: string }) | null} then the next lesson
 * @property {string} cards
 * @property {string} sheet what the way to the worksheet is called, "" for none
 * @property {string} back
 * @property {boolean} projector
 * @property {import("./receipt.js").Receipt | null} receipt with a class
 */

/** @param {import("../streamlit/adapter.js").Mounted<EndPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  const root = elementIn(parentElement, ".lesson");
  /** @param {import("./screen.js").LessonAct} what */
  const act = (what) => setTriggerValue("acted", what);
  root.classList.toggle("projector", data.projector);
  keepProgress(data.lesson, { number: data.number });
  const heading = make("h1", "ask", data.heading);
  heading.tabIndex = -1;
  /** @type {HTMLElement[]} */
  const parts = [heading];
  for (const [title, ...texts] of [data.can, data.paper])
    if (texts.length) parts.push(make("h2", "", title), ...texts.map((text) => formatted("p", "notice", text)));
  if (data.receipt) parts.splice(1, 0, receiptOf(data.receipt));
  const list = make("ol", "scenes");
  for (const [at, { ask, answered, links, own, right }] of data.screens.entries()) {
    const item = make("li", answered ? "answered" : "");
    item.append(formatted("span", "", ask), " ");
    if (own) item.append(make("strong", "", `${own}${right === true ? " ✓" : right === false ? " ↻" : ""}`), " ");
    /** @type {HTMLElement[]} */
    const ways = links.map(({ text, href }) => makeLink(text, href));
    if (!answered) ways.unshift(makeButton(data.answer_it, "quiet", () => act({ do: "go", number: at + 1 })));
    item.append(...ways.flatMap((way, nth) => [nth ? " · " : "", way]));
    list.append(item);
  }
  parts.push(make("h2", "", data.around), list);
  const foot = make("div", "foot");
  const { then: next } = data;
  if (next) {
    const then = Object.assign(makeLink(next.text, next.href), { className: "lock" });
    actInstead(then, () => act({ do: "lesson", name: next.name }));
    foot.append(then);
  }
  foot.append(makeButton(data.cards, "hint", () => act({ do: "cards" })));
  if (data.sheet) foot.append(makeButton(data.sheet, "hint", () => act({ do: "sheet" })));
  foot.append(makeButton(data.back, "hint", () => act({ do: "go", number: data.number - 1 })));
  parts.push(foot);
  const isNew = !root.firstElementChild;
  root.replaceChildren(...parts);
  if (isNew && losesKeyboard(root)) heading.focus({ preventScroll: true });
  listen({ lock: null, locked: true, go: (by) => by < 0 && act({ do: "go", number: data.number - 1 }) });
  fitHeight(root);
}
