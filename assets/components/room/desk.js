// The teacher's desk: the code for the class, its pace, the spread of the screen in hand, and who has answered what; or
// what the class is shown (projector.js). It is drawn anew every two seconds; each part only where it has changed, so
// that nothing is lost that is scrolled or reached by the keyboard.

import { formatted } from "../lesson/formatted.js";
import { qrPicture } from "../lesson/qr.js";
import { elementIn, elementsIn, make, makeButton, makeToggle, named, renew, treeOf } from "../page/elements.js";
import { fitHeight } from "../streamlit/adapter.js";
import { drawQuestion, drawWays, leadByKeys, MAX_VOTES, startProjecting } from "./projector.js";
import { drawSpread } from "./spread.js";
import { drawTable } from "./table.js";

/**
 * `hidden` and `table` are of the desk, `shows_code` to `note` of the projector.
 * @typedef {object} DeskPage
 * @property {string} code
 * @property {string} title
 * @property {{ way_in: string, link: string, qr: import("../lesson/qr.js").QrCode, warning: string }} invitation
 * @property {string} students
 * @property {boolean} projector
 * @property {string} problem
 * @property {Record<string, string>} texts
 * @property {{ screen: number | null, paused: boolean }} pace
 * @property {number} number of the screen in hand
 * @property {number} count
 * @property {string} place
 * @property {string} part the lesson in hand, of several
 * @property {string} ask
 * @property {boolean} revealed
 * @property {number} vote
 * @property {string} answered
 * @property {boolean} hidden
 * @property {import("./spread.js").SceneSpread[]} spreads
 * @property {import("./table.js").ClassTable} table
 * @property {boolean} shows_code
 * @property {boolean} shows_spread
 * @property {string} note
 */

/**
 * @typedef {{ do: "free" | "here" | "pause" | "reveal" | "conceal" | "again" | "hide" | "code" | "spread" | "leave" }
 *   | { do: "screen" | "helped", number: number } | { do: "projector", shown: boolean }} DeskAct
 */

/** @type {WeakMap<Element, string>} */
const drawnParts = new WeakMap();

/** @param {import("../streamlit/adapter.js").Mounted<DeskPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  const root = elementIn(parentElement, ".desk");
  /** @param {DeskAct} what */
  const act = (what) => setTriggerValue("acted", what);
  root.classList.toggle("projector", data.projector);
  leadByKeys(root, data, act);
  const names = data.projector
    ? [data.shows_code ? "invite" : "question", "ways"]
    : ["invite", "problem", "pace", "spread", "table"];
  if (root.dataset.parts !== names.join()) root.replaceChildren(...names.map((name) => make("section", name)));
  root.dataset.parts = names.join();
  if (names.includes("invite"))
    part(root, "invite", [data.code, data.invitation, data.students, data.projector, data.title, data.texts], () =>
      invite(data, act),
    );
  if (data.projector) {
    if (!data.shows_code) part(root, "question", { ...data, students: "" }, () => drawQuestion(root, data));
    const { pace, revealed, vote, shows_code, shows_spread, texts } = data;
    part(root, "ways", [pace, revealed, vote, shows_code, shows_spread, texts], () => drawWays(data, act));
  } else {
    Object.assign(elementIn(root, ".problem"), { role: "alert", textContent: data.problem });
    part(root, "pace", [data.pace, data.number, data.ask, data.answered, data.revealed, data.vote, data.texts], () =>
      pace(data, act),
    );
    part(root, "spread", [data.spreads, data.number, data.texts], () =>
      data.spreads.map((one) => drawSpread(root, one, data.texts)),
    );
    part(root, "table", [data.table, data.number, data.hidden, data.texts], () => drawTable(data, act));
    showColumn(root, data.number);
  }
  fitHeight(root);
}

/** @param {HTMLElement} root @param {string} name @param {unknown} from @param {() => HTMLElement[]} draw */
function part(root, name, from, draw) {
  const section = elementIn(root, `:scope > .${name}`);
  const now = JSON.stringify(from);
  if (drawnParts.get(section) === now) return;
  drawnParts.set(section, now);
  const before = section.querySelector(".scrolls");
  const [left, top] = [before?.scrollLeft ?? 0, before?.scrollTop ?? 0];
  const isReached = before !== null && treeOf(section).activeElement === before;
  renew(section, draw());
  const box = elementsIn(section, ".scrolls").at(0);
  box?.scrollTo({ left, top });
  if (isReached) box?.focus({ preventScroll: true });
}

// The column of another screen in hand, where it is out of sight.
/** @param {HTMLElement} root @param {number} number */
function showColumn(root, number) {
  const shown = root.dataset.number;
  root.dataset.number = String(number);
  if (shown === root.dataset.number) return;
  const box = root.querySelector(".table .scrolls");
  const column = elementsIn(root, "thead .in-hand").at(0);
  if (box && column) box.scrollLeft = column.offsetLeft + column.offsetWidth / 2 - box.clientWidth / 2;
}

/** @param {DeskPage} page @param {(what: DeskAct) => void} act */
function invite(page, act) {
  const { code, title, invitation, students, projector, texts } = page;
  const link = make("a", "link leads-out", invitation.way_in);
  Object.assign(link, { href: invitation.link, target: "_blank", rel: "noopener noreferrer" });
  const leave = makeButton(texts.leave, "quiet", () => act({ do: "leave" }));
  const told = make(
    "div",
    "told",
    make("h1", "", title),
    make("p", "code", code),
    link,
    invitation.warning && make("p", "problem", invitation.warning),
    make("p", "students", students),
    !projector && make("div", "foot", startProjecting(page, act), leave),
  );
  return [told, qrPicture(invitation.qr, texts.scan)];
}

/** @param {DeskPage} page @param {(what: DeskAct) => void} act */
function pace({ pace: { screen, paused }, number, count, place, part, ask, answered, revealed, vote, texts }, act) {
  /** @param {string} text @param {number} by */
  const step = (text, by) => {
    const button = makeButton(by < 0 ? "‹" : "›", "step", () => act({ do: "screen", number: number + by }));
    button.disabled = number + by < 1 || number + by > count;
    return named(button, text);
  };
  const line = make("div", "ways", step(texts.previous, -1), make("span", "place", place), step(texts.next, 1));
  /** @param {"free" | "here" | "pause"} what @param {boolean} pressed */
  const choice = (what, pressed) => makeToggle(texts[what], "choice", pressed, () => act({ do: what }));
  const choices = [choice("free", screen === null), choice("here", screen !== null), choice("pause", paused)];
  const paces = Object.assign(make("div", "paces", ...choices), { role: "group", ariaLabel: texts.pace });
  const reveal = makeButton(revealed ? texts.revealed : texts.reveal, "lock", () => act({ do: "reveal" }));
  reveal.disabled = revealed;
  const conceal = makeButton(texts.conceal, "quiet", () => act({ do: "conceal" }));
  const again = makeButton(texts.again, "hint", () => act({ do: "again" }));
  const offered = revealed ? conceal : vote < MAX_VOTES && again;
  return [
    make("div", "controls", line, paces, make("span", "part", part)),
    formatted("h2", "ask", ask),
    make("div", "foot", reveal, offered, make("span", "answered", answered)),
  ];
}
