// The words of a sentence, large, one of which is chosen: by a click, by the arrow keys, or by Enter.
import { make, makeButton } from "../page/elements.js";
import { oneOf } from "../page/radios.js";
import { isolated, isRtl } from "../page/wording.js";

/**
 * The words of a sentence, and those that look at them, one of which a question is about.
 * @typedef {{ words: string[], queries: string[], query: number }} QuestionSentence
 */

/**
 * @param {string[]} words
 * @param {{ title: string, chosen: number, choose: (at: number) => void, marked?: number, note?: string }} how `marked`
 * is the word that looks, and `note` says so below it
 */
export function wordRow(words, { title, chosen, choose, marked = -1, note = "" }) {
  const row = make("div", "words");
  row.dir = isRtl(words) ? "rtl" : "ltr";
  const buttons = words.map((word, at) => {
    const button = makeButton("", at === marked ? "word looking" : "word", null);
    button.append(make("bdi", "", word));
    if (at === marked) button.append(make("span", "note", note));
    return button;
  });
  oneOf(row, buttons, { title, chosen, choose });
  return row;
}

/** @param {string} word */
export const quoted = (word) => `“${isolated(word)}”`;
