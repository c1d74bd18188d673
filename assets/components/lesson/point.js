// Point at the word that the looking word looks at most. Answer: ``3``.
import { fill } from "../page/wording.js";
import { quoted, wordRow } from "./words.js";

/** @typedef {import("./words.js").QuestionSentence & { kind: "point" }} PointQuestion */

/** @param {import("./screen.js").Asked<PointQuestion>} asked */
export function pointAt({ question, texts, answer, change }) {
  const { words, query, queries } = question;
  return wordRow(words, {
    title: fill(texts.looks, { query: quoted(queries[query]) }),
    chosen: Number(answer ?? 0) - 1,
    choose: (at) => change(String(at + 1), fill(texts.chosen, { word: quoted(words[at]) })),
    marked: words[query] === queries[query] ? query : -1,
    note: texts.looking,
  });
}
