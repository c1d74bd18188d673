// One screen of a lesson: what is asked, the picture to act on, the lock, and hints for who asks for them. An answer
// that is not locked stays in the browser (progress.js). After the lock reveal.js says what came of it.
import { actInstead, claim, elementIn, emphasized, make, makeButton, makeLink, named } from "../page/elements.js";
import { ready, take } from "../scene/address.js";
import { fitHeight } from "../streamlit/adapter.js";
import { cell } from "./cell.js";
import { choose } from "./choose.js";
import { drawRow } from "./draw.js";
import { estimate } from "./estimate.js";
import { flip } from "./flip.js";
import { formatted } from "./formatted.js";
import { listen, losesKeyboard } from "./keys.js";
import { order } from "./order.js";
import { pointAt } from "./point.js";
import { keepDraft, keepProgress, progressOf } from "./progress.js";
import { followRoom, heldOf, lockIn } from "./room.js";
import { asksBesideSentence, sceneSentence } from "./scene_sentence.js";
import { find, why } from "./sentence.js";

/**
 * @typedef {import("./cell.js").CellQuestion | import("./choose.js").ChooseQuestion | import("./draw.js").DrawQuestion
 *   | import("./estimate.js").EstimateQuestion | import("./flip.js").FlipQuestion | import("./order.js").OrderQuestion
 *   | import("./point.js").PointQuestion | import("./sentence.js").FindQuestion
 *   | import("./sentence.js").WhyQuestion} Question
 */

/**
 * The data from which a question is drawn; `change` gets the answer as text, null for none, and a sentence about it.
 * @template {Question} [Kind=Question]
 * @typedef {object} Asked
 * @property {HTMLElement} root
 * @property {Kind} question
 * @property {Record<string, string>} texts
 * @property {string | null} answer that was chosen before
 * @property {(answer: string | null, said: string) => void} change
 * @property {() => void} lock
 */

/**
 * An act on the page, as a message to the server.
 * @typedef {{ do: "again" | "back" | "cards" | "hint" | "like" | "projector" | "sheet" } | { do: "go", number: number }
 *   | { do: "lock", answer: string } | { do: "resume", code: string } | { do: "lesson", name: string }} LessonAct
 */
/** @typedef {(what: LessonAct) => void} ActOnLesson */

/**
 * @typedef {object} ScreenPage
 * @property {import("./progress.js").LessonName} lesson
 * @property {number} number of the screen, from 1
 * @property {boolean} like a like case is asked
 * @property {string} code of the locked answers
 * @property {number} answered
 * @property {string} title
 * @property {string} place
 * @property {string} ask
 * @property {string} problem
 * @property {boolean} projector
 * @property {string} cards where all lessons are
 * @property {import("../scene/address.js").ServerFocus} focus
 * @property {Record<string, string>} texts
 * @property {Question} [question]
 * @property {string | null} [answer] once it is locked
 * @property {{ text?: string, pieces?: string[] }[]} [hints] that were asked for
 * @property {boolean} [more_hints]
 * @property {string} [refusal] why it cannot be asked
 * @property {InRoom | null} room
 */

/**
 * The data of a screen in a class: `told` is shown while a kept answer is not revealed yet, `first` is the answer of
 * an earlier vote, `language` that of the question.
 * @typedef {{ code: string, vote: number, language: string, first: string | null, paused: string, fixed: boolean,
 *   told: string, second: string }} InRoom
 */
/** @typedef {HTMLElement & { asked?: string, said?: string, settle?: () => void }} ScreenRoot with what is asked now */

/** @type {Record<Question["kind"], (asked: Asked<any>) => HTMLElement>} */
const QUESTIONS = { point: pointAt, cell, draw: drawRow, order, choose, estimate, flip, find, why };
const TOUCHES = ["pointerdown", "mousedown", "touchstart", "click", "keydown", "beforeinput", "input", "change"];
const MOMENT_OF_LIVE = 100; // milliseconds until a new place for what is read aloud is known as one
const CHANGES = ["lock", "again"]; // of the locked answers
const resumed = new Set(); // lessons whose kept answers have been sent, or are not wanted any more
const own = new Set(); // lessons that were answered here since the page was opened

/** @param {import("../streamlit/adapter.js").Mounted<ScreenPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {ScreenRoot} */
  const root = elementIn(parentElement, ".lesson");
  const name = `${data.lesson.name} ${data.lesson.version}`;
  /** @type {ActOnLesson} */
  const act = (what) => {
    if (CHANGES.includes(what.do)) own.add(name);
    setTriggerValue("acted", what);
  };
  ready.then(() => take(data.focus));
  root.classList.toggle("projector", data.projector);
  const kept = progressOf(data.lesson);
  const { code, answered, number } = data;
  // A link without answers goes on with those that this browser keeps.
  const resumes = !data.room && !code && kept.code && !resumed.has(name);
  if (!data.room) resumed.add(name);
  if (resumes) {
    act({ do: "resume", code: kept.code });
    return fitHeight(root);
  }
  const isOwn = own.has(name) || !kept.code; // the answers of somebody else's link do not take the place of one's own
  keepProgress(data.lesson, isOwn ? { code, answered, number } : { number });
  // Hints and problems leave the answer that is being made as it is.
  const draw = () => {
    const { lesson, like, ask: told, question, answer = null, room } = data;
    const ofClass = [room?.told, room?.vote, waitingOf(data)];
    const asked = JSON.stringify([lesson, number, like, told, question, answer, ofClass]);
    if (root.asked !== asked) {
      const isLost = root.asked !== undefined && losesKeyboard(root);
      ask(root, data, act);
      if (isLost) elementIn(root, ".ask").focus({ preventScroll: true });
    }
    root.asked = asked;
    sayOfClass(root, room?.paused || room?.told || room?.second || "");
    root.classList.toggle("paused", Boolean(room?.paused));
    for (const step of root.querySelectorAll(".ways > .step")) step.toggleAttribute("hidden", Boolean(room?.fixed));
    root.settle?.();
    elementIn(root, ".problem").textContent = data.problem;
    hint(root, data);
  };
  draw();
  if (data.room) followRoom(root, draw);
  const lock = () => /** @type {HTMLButtonElement | null} */ (root.querySelector(".lock:enabled"))?.click();
  listen({
    lock: data.question && !data.answer ? lock : null,
    go: data.room?.fixed ? null : (by) => data.number + by > 0 && act({ do: "go", number: data.number + by }),
    locked: Boolean(data.answer),
    always: data.projector,
  });
  fitHeight(root);
}

// The answer that is locked here and not kept by the room yet.
/** @param {ScreenPage} page */
const waitingOf = ({ room, number, like }) =>
  room && !like ? (heldOf(room.code).waiting[`${number}.${room.vote}`] ?? null) : null;

/** @param {ScreenRoot} root @param {ScreenPage} data @param {ActOnLesson} act */
function ask(root, data, act) {
  const { lesson, number, like, question, texts, room } = data;
  const waiting = waitingOf(data);
  const isKept = Boolean(room?.told); // and is looked at, until what came of it is shown
  const locked = Boolean(data.answer);
  root.classList.toggle("locked", locked);
  const heading = formatted("h1", "ask", data.ask);
  heading.tabIndex = -1;
  const problem = Object.assign(make("p", "problem"), { role: "alert" });
  const live = Object.assign(make("div", "live"), { role: "status" });
  const foot = make("div", "foot");
  /** @type {HTMLElement[]} */
  const parts = [topOf(data, act), heading];
  if (like) {
    const back = makeButton(texts.to_own, "quiet", () => act({ do: "back" }));
    parts.splice(1, 0, make("p", "like", make("span", "", texts.like_case), " ", back));
  }
  if (data.refusal) parts.push(make("p", "refusal", data.refusal));
  root.settle = undefined;
  if (question && (!locked || isKept)) {
    // The browser keeps nothing of a like case.
    const name = room && room.vote > 1 ? `${number}.${room.vote}` : number;
    const isOfScreen = ["", room?.language].includes(waiting?.language); // else it is of another sentence
    const before = waiting ? isOfScreen && waiting.answer : progressOf(lesson).drafts[name];
    const draft = before || (!waiting && room?.first) || null;
    let answer = isKept ? (data.answer ?? null) : like ? null : draft;
    const lock = makeButton(texts.lock, "lock", () => {
      if (answer === null) return;
      lock.disabled = true; // until the server has it
      if (room && !like) lockIn(room.code, `${number}.${room.vote}`, { answer, language: room.language });
      else act({ do: "lock", answer });
    });
    root.settle = () => {
      lock.disabled = answer === null || root.classList.contains("paused") || waiting !== null;
    };
    /** @type {Asked["change"]} */
    const change = (now, said) => {
      answer = now;
      if (!like) keepDraft(lesson, name, now);
      root.settle?.();
      if (said) live.textContent = said;
    };
    if (asksBesideSentence(question)) parts.push(sceneSentence(question));
    const asked = { root, question, texts, answer, change, lock: () => lock.click() };
    const box = make("div", `act ${question.kind}`, QUESTIONS[question.kind](asked));
    root.settle();
    if (isKept || waiting !== null) holdStill(box);
    if (!isKept)
      foot.append(
        lock,
        makeButton(texts.hint, "hint", () => act({ do: "hint" })),
      );
    parts.push(box);
  }
  parts.push(problem, make("p", "class"), foot, make("ol", "hints"), live);
  root.replaceChildren(...parts);
}

// Reads a change by the class aloud, after drawing: a text that appears together with its live region is not read.
/** @param {ScreenRoot} root @param {string} text */
function sayOfClass(root, text) {
  elementIn(root, ".class").textContent = text;
  const say = () => root.querySelector(".live")?.replaceChildren(text);
  if (root.said !== text) setTimeout(say, MOMENT_OF_LIVE);
  root.said = text;
}

// An answer that is locked can be read, and is not changed by the hand or by keys.
/** @param {HTMLElement} box */
function holdStill(box) {
  box.classList.add("still");
  box.ariaDisabled = "true";
  /** @param {Event} event */
  const stop = (event) => {
    if (event instanceof KeyboardEvent && event.key === "Tab") return;
    claim(event);
  };
  for (const act of TOUCHES) box.addEventListener(act, stop, true);
}

/** @param {ScreenPage} data @param {ActOnLesson} act */
function topOf(data, act) {
  const { texts, number } = data;
  const cards = Object.assign(makeLink(texts.cards, data.cards), { className: "all" });
  actInstead(cards, () => act({ do: "cards" }));
  /** @param {string} text @param {number} by */
  const step = (text, by) => {
    const button = makeButton(by < 0 ? "‹" : "›", "step", () => act({ do: "go", number: number + by }));
    return named(button, text);
  };
  const back = step(texts.previous, -1);
  back.disabled = number === 1;
  const ways = make("nav", "ways", back, make("span", "place", data.place), step(texts.next, 1));
  const projector = makeButton(data.projector ? texts.projector_off : texts.projector, "quiet", () =>
    act({ do: "projector" }),
  );
  const title = make("span", "title", data.title);
  return data.room ? make("div", "top", title, ways) : make("div", "top", cards, title, ways, projector);
}

/** @param {ScreenRoot} root @param {ScreenPage} page */
function hint(root, { hints, more_hints, texts }) {
  const list = elementIn(root, ".hints");
  const items = (hints ?? []).map(({ text = "", pieces }) =>
    pieces ? emphasized("li", pieces) : formatted("li", "", text),
  );
  const isNew = items.length > list.children.length;
  list.replaceChildren(...items);
  const button = root.querySelector(".hint");
  if (!button) return;
  button.toggleAttribute("hidden", !more_hints);
  button.textContent = items.length === 2 ? texts.hint_like : texts.hint;
  if (isNew) elementIn(root, ".live").textContent = items[items.length - 1].textContent;
}
