// Point at a cell of the empty matrix. Answer: ``9,3``, its row and its column.
import { claim, elementIn, make, targetOf } from "../page/elements.js";
import { arrowOf } from "../page/radios.js";
import { fill } from "../page/wording.js";
import { makeMatrix } from "./matrix.js";
import { quoted } from "./words.js";

/** @typedef {{ kind: "cell", words: string[], queries: string[], query: null }} CellQuestion */

/** @param {import("./screen.js").Asked<CellQuestion>} asked */
export function cell({ question, texts, answer, change }) {
  const { queries, words } = question;
  const [first, second] = (answer ?? "").split(",").map((at) => Number(at) - 1);
  let at = { row: answer ? first : 0, column: answer ? second : 0 };
  /** @type {HTMLElement[][]} */
  const cells = queries.map(() => []);
  const box = makeMatrix(queries, words, texts, (row, column) => {
    const place = Object.assign(make("td"), { role: "gridcell", ariaLabel: nameOf(row, column) });
    Object.assign(place.dataset, { row, column });
    cells[row][column] = place;
    return place;
  });
  const table = Object.assign(elementIn(box, "table"), { role: "grid", ariaLabel: texts.cell });
  for (const row of table.querySelectorAll("tr")) row.role = "row";

  /** @param {number} row @param {number} column */
  function nameOf(row, column) {
    return fill(texts.seen, { query: quoted(queries[row]), key: quoted(words[column]) });
  }
  /** @param {number} row @param {number} column @param {boolean} chosen */
  function stand(row, column, chosen) {
    const before = cells[at.row][at.column];
    Object.assign(before, { tabIndex: -1, ariaSelected: null });
    at = { row, column };
    const now = Object.assign(cells[row][column], { tabIndex: 0, ariaSelected: chosen ? "true" : null });
    for (const [nth, line] of cells.entries())
      for (const [key, one] of line.entries())
        one.classList.toggle("crossed", chosen && (nth === row || key === column) && one !== now);
  }
  /** @param {number} row @param {number} column */
  function choose(row, column) {
    stand(row, column, true);
    change(`${row + 1},${column + 1}`, fill(texts.chosen, { word: nameOf(row, column) }));
  }
  table.addEventListener("click", (event) => {
    const place = targetOf(event)?.closest("td");
    if (place) choose(Number(place.dataset.row), Number(place.dataset.column));
  });
  table.addEventListener("keydown", (event) => {
    const by = arrowOf(event);
    if (!by) return;
    claim(event);
    const row = Math.min(Math.max(at.row + by[0], 0), queries.length - 1);
    const column = Math.min(Math.max(at.column + by[1], 0), words.length - 1);
    cells[row][column].focus();
    choose(row, column);
  });
  stand(at.row, at.column, Boolean(answer));
  return box;
}
