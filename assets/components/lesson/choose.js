// Choose one of two pictures. Words that would say which is which are left out of both. Answer: ``1`` or ``2``.
import { make, makeButton } from "../page/elements.js";
import { oneOf } from "../page/radios.js";
import { fill } from "../page/wording.js";
import { shade, themeColours } from "../pictures/colours.js";
import { makeMatrix } from "./matrix.js";

/** @typedef {{ rows: string[], columns: string[], values: (number | null)[] }} PictureOfWeights null where it is masked */
/** @typedef {import("./words.js").QuestionSentence & { kind: "choose", pictures: PictureOfWeights[] }} ChooseQuestion */

/** @param {import("./screen.js").Asked<ChooseQuestion>} asked */
export function choose({ root, question, texts, answer, change }) {
  const row = make("div", "pictures");
  const colours = themeColours(root);
  const buttons = question.pictures.map((one, at) => {
    const name = fill(texts.picture, { number: at + 1 });
    const button = Object.assign(makeButton("", "picture", null), { ariaLabel: name });
    button.append(make("span", "name", name), weightsOf(one, texts, colours));
    return button;
  });
  oneOf(row, buttons, {
    title: texts.choose,
    chosen: Number(answer ?? 0) - 1,
    choose: (at) => change(String(at + 1), fill(texts.chosen, { word: fill(texts.picture, { number: at + 1 }) })),
  });
  return row;
}

/**
 * The matrix of a picture, which nobody has to read aloud: its words are those of the sentence.
 * @param {PictureOfWeights} picture
 * @param {Record<string, string>} texts
 * @param {import("../pictures/colours.js").Colour[]} colours
 */
export function weightsOf({ rows, columns, values }, texts, colours) {
  const table = makeMatrix(rows, columns, texts, (line, column) => {
    const cell = make("td");
    const value = values[line * columns.length + column];
    if (value === null) cell.classList.add("masked");
    else cell.style.backgroundColor = `rgb(${shade(colours, value)})`;
    return cell;
  });
  return Object.assign(table, { ariaHidden: "true" });
}
