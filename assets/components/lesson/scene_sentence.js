// The sentence of a question that is not answered on its words.
import { make } from "../page/elements.js";

/** @typedef {import("./screen.js").Question} Question */

const WITH_TEXT = ["order", "choose", "estimate", "why"]; // kinds that are not answered on the words of the sentence

// Whether the sentence stands beside what is acted on: a change that only switches heads off has no words, either.
/** @param {Question} question */
export function asksBesideSentence(question) {
  return WITH_TEXT.includes(question.kind) || (question.kind === "flip" && !question.changes.includes("cut"));
}

// The sentence, with the word that looks and the one that is looked at.
/** @param {Question} question */
export function sceneSentence(question) {
  const { words, queries, query, kind } = question;
  const { key, quantity } = kind === "estimate" ? question : { key: null, quantity: "" };
  const line = make("p", "text");
  const isOfWord = kind === "order" || ["weight", "score", "row_sum"].includes(quantity);
  for (const [at, word] of queries.entries()) {
    const name = make("bdi", "", word);
    if (isOfWord && at === query) name.className = "looking";
    if (key !== null && word === words[at] && at === key) name.className = "looked-at";
    line.append(name, " ");
  }
  return line;
}
