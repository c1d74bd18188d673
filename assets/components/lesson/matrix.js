// A matrix with words on both axes as a table: rows look at columns.
import { make } from "../page/elements.js";

/**
 * @param {string[]} rows
 * @param {string[]} columns
 * @param {{ matrix_rows?: string, matrix_columns?: string }} texts the titles of the axes
 * @param {(row: number, column: number) => HTMLElement} cell a table cell
 */
export function makeMatrix(rows, columns, { matrix_rows: from, matrix_columns: to }, cell) {
  const corner = make("th", "corner", make("span", "from", `${from} ↓`), make("span", "to", `${to} →`));
  const head = make("tr", "", corner, ...columns.map((word) => axisName(word, "column")));
  const body = rows.map((word, row) =>
    make("tr", "", axisName(word, "row"), ...columns.map((_, column) => cell(row, column))),
  );
  return make("div", "scrolls", make("table", "matrix", head, ...body));
}

// Characters of scripts that can be written downwards, which stand upright above a column.
const UPRIGHT = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef]/u;

// One such character, with or without the number of a word that comes twice, is not written downwards.
const FLAT = /^.(\u2009.)?$/u;

/** @param {string} word @param {"row" | "column"} scope */
function axisName(word, scope) {
  const name = make("bdi", UPRIGHT.test(word) ? (FLAT.test(word) ? "upright flat" : "upright") : "", word);
  return Object.assign(make("th", scope, name), { scope: scope === "row" ? "row" : "col" });
}
