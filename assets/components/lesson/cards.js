// The cards of all lessons, each with how far this browser is in it.
import { actInstead, elementIn, make, makeButton } from "../page/elements.js";
import { fill } from "../page/wording.js";
import { fitHeight } from "../streamlit/adapter.js";
import { formatted } from "./formatted.js";
import { progressOf } from "./progress.js";

/** @typedef {import("./progress.js").LessonName & LessonCard} LessonWithCard */
/** @typedef {{ title: string, goal: string, size: string, count: number, href: string }} LessonCard */
/** @typedef {{ do: "open", name: string, number: number, code: string } | { do: "teach" | "sheet", name: string }} Act */

/**
 * `teach` is what the way to a room with the lesson is called, "" where there are no rooms; `sheet` that to its
 * worksheet.
 * @typedef {{ lessons: LessonWithCard[], texts: Record<string, string>, teach: string, sheet: string }} CardsPage
 */

/** @param {import("../streamlit/adapter.js").Mounted<CardsPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  const root = elementIn(parentElement, ".cards");
  root.replaceChildren(...data.lessons.map((lesson) => cardOf(lesson, data, (what) => setTriggerValue("acted", what))));
  fitHeight(root);
}

/** @param {LessonWithCard} lesson @param {CardsPage} page @param {(act: Act) => void} act */
function cardOf(lesson, { texts, teach, sheet }, act) {
  const { code, answered, number } = progressOf(lesson);
  const done = answered >= lesson.count;
  const begun = answered > 0 || number > 1;
  const start = make("a", "start", done ? texts.again : begun ? texts.go_on : texts.start);
  const to = new URL(lesson.href, document.baseURI);
  const at = begun && !done ? Math.min(number, lesson.count) : 1;
  if (begun) to.searchParams.set("screen", String(at));
  if (code) to.searchParams.set("answers", code);
  Object.assign(start, { href: to.href, target: "_self", ariaLabel: `${start.textContent}: ${lesson.title}` });
  actInstead(start, () => act({ do: "open", name: lesson.name, number: at, code }));
  const progress = done ? texts.done : fill(texts.progress, { answered, count: lesson.count });
  return make(
    "article",
    "card",
    make("h2", "", lesson.title),
    make("p", "size", lesson.size),
    formatted("p", "goal", lesson.goal),
    make("div", "foot", start, begun && make("span", "progress", progress)),
    makeButton(sheet, "quiet", () => act({ do: "sheet", name: lesson.name })),
    teach && makeButton(teach, "quiet", () => act({ do: "teach", name: lesson.name })),
  );
}
