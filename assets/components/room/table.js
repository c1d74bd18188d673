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
  const top = make("div", "controls");
  top.append(
    makeToggle(texts.hide, "choice", hidden, () => act({ do: "hide" })),
    legend(texts),
  );
  if (!rows.length) return [top, make("p", "none", texts.none)];
  const grid = make("table", "class");
  const head = make("tr");
  const names = range(screens).map((at) => {
    const name = columnName("");
    const button = makeButton(String(at), "quiet", () => act({ do: "screen", number: at }));
    name.append(named(button, fill(texts.to, { number: at })));
    return name;
  });
  head.append(columnName(texts.name), ...names);
  const total = make("tr", "total");
  total.append(
    columnName(texts.total),
    ...range(screens).map((at) => totalOf(rows.map((row) => signs[row.signs[at - 1]]))),
  );
  const lines = rows.map((row) => {
    const line = make("tr", row.help ? "asks" : "");
    line.append(
      studentCell(row, texts, act),
      ...row.signs.map((nth, at) => cellOf(signs[nth], row.screen === at + 1, texts)),
    );
    return line;
  });
  const groups = make("tr", "lessons");
  groups.append(columnName(""), ...parts.map(([title, count]) => Object.assign(columnName(title), { colSpan: count })));
  const [heads, body, foot] = [make("thead"), make("tbody"), make("tfoot")];
  heads.append(...(parts.length ? [groups] : []), head);
  body.append(...lines);
  foot.append(total);
  for (const line of [head, total, ...lines]) line.children[number].classList.add("in-hand");
  grid.append(heads, body, foot);
  const box = make("div", "scrolls");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", texts.signs);
  box.append(grid);
  return [top, box];
}

/** @param {number} count */
const range = (count) => Array.from({ length: count }, (_, at) => at + 1);

/** @param {string} text */
function columnName(text) {
  const name = make("th", "", text);
  name.setAttribute("scope", "col");
  return name;
}

/** @param {ClassTable["rows"][number]} row @param {Record<string, string>} texts @param {(what: import("./desk.js").DeskAct) => void} act */
function studentCell({ number, name, help }, texts, act) {
  const cell = make("th", "student");
  cell.setAttribute("scope", "row");
  cell.append(make("bdi", "", name || fill(texts.student, { number })));
  if (help) {
    const hand = makeButton(`✋ ${texts.help}`, "hand", () => act({ do: "helped", number }));
    hand.title = texts.helped;
    cell.append(" ", hand);
  }
  return cell;
}

/** @param {[SignName, string]} sign @param {boolean} isHere @param {Record<string, string>} texts */
function cellOf([name, told], isHere, texts) {
  const cell = make("td", isHere ? "here" : "");
  const words = [told || texts.empty, isHere && texts.at].filter(Boolean).join(" · ");
  cell.append(shapeOf(name, words));
  cell.title = words;
  return cell;
}

/** @param {SignName} name @param {string} words */
function shapeOf(name, words) {
  const shape = make("span", `shape ${name}`, SHAPES[name]);
  shape.setAttribute("role", "img");
  shape.setAttribute("aria-label", words);
  return shape;
}

/** @param {[SignName, string][]} signs of one screen */
function totalOf(signs) {
  const cell = make("td");
  for (const name of TOTALS) {
    const count = signs.filter(([one]) => one === name).length;
    if (count) cell.append(make("span", `count ${name}`, `${SHAPES[name]} ${count}`));
  }
  return cell;
}

/** @param {Record<string, string>} texts */
function legend(texts) {
  const list = make("p", "legend");
  for (const name of /** @type {const} */ (["right", "other", "misread", "unchecked", "empty"])) {
    const one = make("span");
    one.append(shapeOf(name, ""), ` ${texts[name]}`);
    one.firstElementChild?.setAttribute("aria-hidden", "true");
    list.append(one);
  }
  return list;
}
