// The answers of a class: a row for each student, a column for each screen, a sign in each cell. Signs are shapes with
// words, so that nobody has to tell colours apart.
import { make, makeButton, makeToggle, named } from "../page/elements.js";
import { fill } from "../page/wording.js";

/** @typedef {"empty" | "answered" | "unchecked" | "right" | "other" | "misread"} SignName */
/**
 * @typedef {object} ClassTable
 * @property {{ number: number, name: string, screen: number, help: boolean, signs: number[] }[]} rows with the
 * places of their signs
 * @property {[SignName, string][]} signs
 * @property {number} screens
 * @property {[title: string, screens: number][]} parts of a class with several lessons
 */

/** @type {Record<SignName, string>} */
const SHAPES = { empty: "·", answered: "■", unchecked: "≡", right: "●", other: "○", misread: "⇄" };
/** @type {SignName[]} */
const TOTALS = ["right", "other", "misread", "unchecked", "answered"];

/** @param {import("./desk.js").DeskPage} page @param {(what: import("./desk.js").DeskAct) => void} act */
export function drawTable({ table: { rows, screens, parts, signs }, number, hidden, texts }, act) {
  const hide = makeToggle(texts.hide, "choice", hidden, () => act({ do: "hide" }));
  const top = make("div", "controls", hide, legend(texts));
  if (!rows.length) return [top, make("p", "none", texts.none)];
  const names = range(screens).map((at) => {
    const button = makeButton(String(at), "quiet", () => act({ do: "screen", number: at }));
    return columnName(named(button, fill(texts.to, { number: at })));
  });
  const head = make("tr", "", columnName(texts.name), ...names);
  const totals = range(screens).map((at) => totalOf(rows.map((row) => signs[row.signs[at - 1]])));
  const total = make("tr", "total", columnName(texts.total), ...totals);
  const lines = rows.map((row) => {
    const cells = row.signs.map((nth, at) => cellOf(signs[nth], row.screen === at + 1, texts));
    return make("tr", row.help ? "asks" : "", studentCell(row, texts, act), ...cells);
  });
  for (const line of [head, total, ...lines]) line.children[number].classList.add("in-hand");
  const lessons = parts.map(([title, count]) => Object.assign(columnName(title), { colSpan: count }));
  const groups = parts.length > 0 && make("tr", "lessons", columnName(""), ...lessons);
  const [heads, body, foot] = [make("thead", "", groups, head), make("tbody", "", ...lines), make("tfoot", "", total)];
  const box = make("div", "scrolls", make("table", "class", heads, body, foot));
  return [top, Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: texts.signs })];
}

/** @param {number} count */
const range = (count) => Array.from({ length: count }, (_, at) => at + 1);

/** @param {string | Node} name */
const columnName = (name) => Object.assign(make("th", "", name), { scope: "col" });

/** @param {ClassTable["rows"][number]} row @param {Record<string, string>} texts @param {(what: import("./desk.js").DeskAct) => void} act */
function studentCell({ number, name, help }, texts, act) {
  const cell = make("th", "student", make("bdi", "", name || fill(texts.student, { number })));
  const hand = makeButton(`✋ ${texts.help}`, "hand", () => act({ do: "helped", number }));
  if (help) cell.append(" ", Object.assign(hand, { title: texts.helped }));
  return Object.assign(cell, { scope: "row" });
}

/** @param {[SignName, string]} sign @param {boolean} isHere @param {Record<string, string>} texts */
function cellOf([name, told], isHere, texts) {
  const words = [told || texts.empty, isHere && texts.at].filter(Boolean).join(" · ");
  return Object.assign(make("td", isHere ? "here" : "", shapeOf(name, words)), { title: words });
}

/** @param {SignName} name @param {string} words */
const shapeOf = (name, words) =>
  Object.assign(make("span", `shape ${name}`, SHAPES[name]), { role: "img", ariaLabel: words });

/** @param {[SignName, string][]} signs of one screen */
function totalOf(signs) {
  const counts = TOTALS.map((name) => {
    const count = signs.filter(([one]) => one === name).length;
    return count > 0 && make("span", `count ${name}`, `${SHAPES[name]} ${count}`);
  });
  return make("td", "", ...counts);
}

/** @param {Record<string, string>} texts */
function legend(texts) {
  const names = /** @type {const} */ (["right", "other", "misread", "unchecked", "empty"]);
  const shapes = names.map((name) => {
    const shape = Object.assign(shapeOf(name, ""), { ariaHidden: "true" });
    return make("span", "", shape, ` ${texts[name]}`);
  });
  return make("p", "legend", ...shapes);
}
