// A sentence that is typed: one in which something holds, which begins with that of the scene, or a reason for the
// teacher. Answer: the sentence. Enter locks it, Shift+Enter breaks the line.
import { make } from "../page/elements.js";
import { COMPOSING } from "../streamlit/sentence_field.js";

const MAX_TEXT = 600; // characters (mha_core/lessons/question.py)

/** @typedef {import("./words.js").QuestionSentence & { kind: "find", text: string }} FindQuestion */
/** @typedef {import("./words.js").QuestionSentence & { kind: "why" }} WhyQuestion */

/** @param {import("./screen.js").Asked<FindQuestion>} asked */
export const find = (asked) => field(asked, asked.question.text, asked.texts.sentence);

/** @param {import("./screen.js").Asked<WhyQuestion>} asked */
export function why(asked) {
  return field(asked, "", asked.texts.reason, make("p", "note", asked.texts.for_teacher));
}

/**
 * @param {Pick<import("./screen.js").Asked<FindQuestion>, "answer" | "change" | "lock">} asked
 * @param {string} start
 * @param {string} title
 * @param {HTMLElement} [below]
 */
function field({ answer, change, lock }, start, title, below) {
  const text = make("textarea");
  const limits = { maxLength: MAX_TEXT, rows: 3, enterKeyHint: "done" };
  Object.assign(text, { value: answer ?? start, ariaLabel: title, ...limits });
  text.addEventListener("input", () => {
    const now = text.value.trim();
    change(now && now !== start.trim() ? now : null, "");
  });
  text.addEventListener("keydown", (event) => {
    event.stopPropagation(); // Streamlit has keys of its own
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === COMPOSING) return;
    event.preventDefault();
    lock();
  });
  return make("div", "sentence", text, below);
}
