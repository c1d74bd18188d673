// A worksheet to print: the questions of a lesson with empty pictures, and the key on a page of its own.
import { elementIn, make, makeButton } from "../page/elements.js";
import { fill } from "../page/wording.js";
import { themeColours } from "../pictures/colours.js";
import { fitHeight } from "../streamlit/adapter.js";
import { weightsOf } from "./choose.js";
import { tableOf } from "./estimate.js";
import { formatted } from "./formatted.js";
import { makeMatrix } from "./matrix.js";

/** @typedef {import("./screen.js").Question} Question */
/** @typedef {{ ask: string, notice: string, answer: string, question?: Question, refusal?: string }} SheetScreen */

/**
 * @typedef {object} Sheet
 * @property {string} title
 * @property {SheetScreen[]} screens
 * @property {string} paper
 * @property {Record<string, string>} texts
 * @property {Record<string, string>} drawn the texts of pictures
 */

const LINES = 3; // for a sentence that is written by hand

/** @param {import("../streamlit/adapter.js").Mounted<Sheet>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  const root = elementIn(parentElement, ".sheet");
  const { title, screens, paper, texts } = data;
  const ways = make(
    "div",
    "foot unprinted",
    makeButton(texts.print, "lock", () => window.print()),
    makeButton(texts.show, "hint", () => key.classList.toggle("shown")),
    makeButton(texts.back, "hint", () => setTriggerValue("acted", { do: "back" })),
  );
  const questions = screens.map(({ ask, question, refusal }, at) => {
    const heading = formatted("h2", "", ask);
    heading.prepend(`${at + 1}. `);
    const parts = question ? sheetPicture(root, question, data) : [make("p", "refusal", refusal)];
    return make("article", "", heading, ...parts);
  });
  const asked = make("section", "", make("h1", "", title), make("p", "name-line", texts.name), ...questions);
  const answers = screens.map(({ answer, notice }) => {
    const said = answer ? [make("strong", "", answer), " "] : [];
    return make("li", "", ...said, formatted("span", "", notice));
  });
  const onPaper = paper ? [make("h2", "", texts.paper), formatted("p", "", paper)] : [];
  const heading = make("h1", "", fill(texts.key, { title }));
  const key = make("section", "key", heading, make("ol", "", ...answers), ...onPaper);
  root.replaceChildren(ways, asked, key);
  fitHeight(root);
}

// The picture of a question as a student fills it in, and the line for an answer.
/** @param {HTMLElement} root @param {Question} question @param {Sheet} sheet */
function sheetPicture(root, question, { texts, drawn }) {
  const { words, queries, query } = question;
  const blank = () => make("td");
  const answer = make("p", "blank", texts.answer);
  switch (question.kind) {
    case "cell":
      return [makeMatrix(queries, words, drawn, blank)];
    case "draw":
      return [makeMatrix([queries[query ?? 0]], words, drawn, blank)];
    case "choose": {
      const pictures = question.pictures.map((one, at) => {
        const name = make("span", "name", fill(drawn.picture, { number: at + 1 }));
        return make("div", "picture", name, weightsOf(one, drawn, themeColours(root)));
      });
      return [make("div", "pictures", ...pictures), answer];
    }
    case "order":
      return [
        textOf(question),
        make("p", "", question.heads.map((head) => fill(drawn.head, { head })).join(" · ")),
        answer,
      ];
    case "estimate":
      return [...(question.given ? [tableOf(question.given)] : [textOf(question)]), answer];
    case "find":
    case "why":
      return [textOf(question), ...Array.from({ length: LINES }, () => make("p", "blank"))];
    default:
      return [textOf(question), answer];
  }
}

// The sentence, in which the word that looks is marked.
/** @param {Question} question */
function textOf({ words, queries, query }) {
  const line = make("p", "text");
  words.forEach((word, at) => {
    line.append(make("bdi", at === query && word === queries[at] ? "looking" : "", word), " ");
  });
  return line;
}
