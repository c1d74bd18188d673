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
  const scenes = data.screens.map(({ ask, answered, links, own, right }, at) => {
    const mark = right === true ? " ✓" : right === false ? " ↻" : "";
    const said = own ? [make("strong", "", `${own}${mark}`), " "] : [];
    /** @type {HTMLElement[]} */
    const ways = links.map(({ text, href }) => makeLink(text, href));
    if (!answered) ways.unshift(makeButton(data.answer_it, "quiet", () => act({ do: "go", number: at + 1 })));
    const listed = ways.flatMap((way, nth) => [nth ? " · " : "", way]);
    return make("li", answered ? "answered" : "", formatted("span", "", ask), " ", ...said, ...listed);
  });
  const { then: next } = data;
  const then = next && Object.assign(makeLink(next.text, next.href), { className: "lock" });
  if (then) actInstead(then, () => act({ do: "lesson", name: next.name }));
  const foot = make(
    "div",
    "foot",
    then,
    makeButton(data.cards, "hint", () => act({ do: "cards" })),
    data.sheet && makeButton(data.sheet, "hint", () => act({ do: "sheet" })),
    makeButton(data.back, "hint", () => act({ do: "go", number: data.number - 1 })),
  );
  parts.push(make("h2", "", data.around), make("ol", "scenes", ...scenes), foot);
  const isNew = !root.firstElementChild;
  root.replaceChildren(...parts);
  if (isNew && losesKeyboard(root)) heading.focus({ preventScroll: true });
  listen({ lock: null, locked: true, go: (by) => by < 0 && act({ do: "go", number: data.number - 1 }) });
  fitHeight(root);
}
