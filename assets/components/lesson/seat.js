// A student's seat in a room: the door where one joins, and the line below each question. It sends the token that this
// browser holds, and the answers that wait here, until the room names them as kept; it asks the page anew when the
// teacher has changed the room.
import { elementIn, make, makeButton, makeLink, makeToggle, renew, write } from "../page/elements.js";
import { isKept } from "../page/kept.js";
import { fitHeight } from "../streamlit/adapter.js";
import { formatted } from "./formatted.js";
import { qrPicture } from "./qr.js";
import { callRoomFollowers, followRoom, heldOf, holdOf, release, roomKey } from "./room.js";

/**
 * @typedef {{ do: "enter", token: string } | { do: "join", name: string, asked: string } | { do: "look" | "leave" }
 *   | { do: "lock", screen: number, vote: number, answer: string, language: string }
 *   | { do: "device" } | { do: "help", needs_help: boolean }} SeatAct
 */

/**
 * @typedef {object} Door
 * @property {string} heading
 * @property {string} goal
 * @property {string} what is kept, and until when
 * @property {boolean} [is_refused] the token is none of this room
 */
/**
 * @typedef {object} SeatLine
 * @property {string} token
 * @property {string} invitation
 * @property {number} version of the room as it is drawn
 * @property {Record<string, string>} kept answers by "screen.vote"
 * @property {{ key: string, answer: string, reason: string } | null} not_taken
 * @property {boolean} needs_help
 * @property {string} link with which this student goes on on another device
 * @property {import("./qr.js").QrCode | null} qr of the link, once it is asked for
 * @property {string} you
 * @property {string} until
 * @property {import("./room.js").TakenAlong[]} along
 */
/**
 * @typedef {{ code: string, problem?: string, asks_again?: boolean, gone?: string, fields: string,
 *   texts: Record<string, string> } & Partial<Door> & Partial<SeatLine>} SeatPage
 */
/** @typedef {HTMLElement & { shown?: string }} SeatRoot */

const TICK = 500; // milliseconds
const LOOKS = 2_000; // between two questions for the version
const MAX_LOOKS = 30_000; // where the server does not answer
const AGAIN = 4_000; // until something is sent once more
const MAX_AGAIN = 16_000; // where that has not helped: a server with much to do is not asked more
const PATIENT = 1_500; // until it is said that an answer waits
const JITTER = 0.2; // of these times: a class does not ask in step
const TOKEN = /^\d{1,6}-[0-9A-Z]{26}$/;

/** @type {{ root: SeatRoot, data: SeatPage, act: (what: SeatAct) => void } | null} */
let now = null;
let clock = 0;
let again = AGAIN;
let sentAt = -Infinity; // what waits for an answer of the server
let lookAt = 0; // when the version is asked for next
let pause = LOOKS;
let asking = false;
let isLinkRead = false;
/** @type {Record<string, number>} */
const since = {}; // when answers began to wait

/** @param {import("../streamlit/adapter.js").Mounted<SeatPage>} mounted */
export default function ({ data, parentElement, setTriggerValue }) {
  /** @type {SeatRoot} */
  const root = elementIn(parentElement, ".seat");
  const isOther = now && (now.data.invitation === undefined) !== (data.invitation === undefined);
  if (isOther) [sentAt, again] = [-Infinity, AGAIN]; // the server answers
  now = { root, data, act: (what) => setTriggerValue("acted", what) };
  if (!clock) {
    clock = window.setInterval(tick, TICK);
    document.addEventListener("visibilitychange", () => {
      lookAt = 0;
    });
    window.addEventListener("storage", hearOtherTab);
  }
  if (data.invitation !== undefined) drawLine(root, data);
  else if (data.gone !== undefined) drawGone(root, data);
  else drawDoor(root, data);
  fitHeight(root);
  tick();
}

const drawPlace = () => crypto.getRandomValues(new Uint32Array(4)).join("");
let askedPlace = drawPlace(); // with it a place that was given, of which this page has not heard, is not given twice

/** @param {number} time */
const about = (time) => time * (1 + JITTER * (Math.random() - 0.5));

/** @param {SeatAct} what */
function sendAct(what) {
  sentAt = performance.now();
  now?.act(what);
}

// Whatever is not done yet is tried again: the network, the server or the database may be away for a while.
function tick() {
  if (!now?.root.isConnected) return;
  const { data } = now;
  const { waiting, token } = heldOf(data.code);
  const time = performance.now();
  const isFree = time - sentAt > again;
  if (data.invitation === undefined) {
    if (data.gone !== undefined) return;
    if (token && !data.is_refused && isFree) sendAct({ do: "enter", token });
    else if (data.asks_again && isFree) sendAct({ do: "look" });
    return;
  }
  const [first] = Object.entries(waiting);
  for (const key of Object.keys(waiting)) since[key] ??= time;
  if (first && (isFree || since[first[0]] > sentAt)) {
    again = since[first[0]] > sentAt ? about(AGAIN) : about(Math.min(2 * again, MAX_AGAIN));
    const [screen, vote] = first[0].split(".").map(Number);
    sendAct({ do: "lock", screen, vote, ...first[1] });
  }
  sayWaiting();
  if (time >= lookAt && !asking && !document.hidden) look(data);
}

function sayWaiting() {
  if (!now) return;
  const line = now.root.querySelector(".saving");
  if (!line) return;
  const { waiting } = heldOf(now.data.code);
  const isLong = Object.keys(waiting).some((key) => performance.now() - (since[key] ?? Infinity) > PATIENT);
  write(line, isLong ? now.data.texts.waiting : "");
}

// Has the teacher changed the room? Only the version is asked for; another one asks the page.
/** @param {SeatPage} data */
async function look({ code, invitation, version }) {
  asking = true;
  let found;
  try {
    const answer = await fetch(new URL(`./headscope/rooms/${invitation}`, document.baseURI), { cache: "no-store" });
    if (answer.ok) found = (await answer.json()).version;
    else if (answer.status === 404) found = null; // it is deleted
    pause = answer.ok || answer.status === 404 ? LOOKS : Math.min(2 * pause, MAX_LOOKS);
  } catch {
    pause = Math.min(2 * pause, MAX_LOOKS);
  }
  asking = false;
  lookAt = performance.now() + about(pause);
  const isSame = now?.data.code === code && now.data.version === version;
  if (found !== undefined && found !== version && isSame && performance.now() - sentAt > LOOKS / 2)
    sendAct({ do: "look" });
}

// Another tab of the same student had an answer kept.
/** @param {StorageEvent} event */
function hearOtherTab({ key, oldValue, newValue }) {
  if (!now?.root.isConnected || key !== roomKey(now.data.code) || now.data.invitation === undefined) return;
  callRoomFollowers();
  /** @param {string | null} text */
  const waits = (text) => Object.keys(JSON.parse(text ?? "{}").waiting ?? {});
  const left = waits(newValue);
  if (waits(oldValue).some((one) => !left.includes(one))) sendAct({ do: "look" });
}

// The token of the link with which one goes on on another device: it stands in the fragment, which no server sees.
/** @param {string} code */
function tokenOfLink(code) {
  const [opened] = performance.getEntriesByType("navigation");
  const { hash, searchParams } = new URL(opened.name);
  const isHere = (searchParams.get("room") ?? "").toUpperCase().startsWith(code);
  const found = decodeURIComponent(hash.slice(1));
  const token = !isLinkRead && isHere && TOKEN.test(found) ? found : "";
  isLinkRead ||= isHere;
  return token;
}

/** @param {SeatRoot} root @param {SeatPage} data */
function drawDoor(root, data) {
  const { code, texts, heading = "", goal = "", what = "", problem = "" } = data;
  const linked = tokenOfLink(code);
  if (linked) holdOf(code, { token: linked });
  if (data.is_refused) holdOf(code, { token: "" });
  const isComing = Boolean(heldOf(code).token) || !heading; // nothing is asked of who sits here already
  const shown = JSON.stringify([code, isComing, heading]);
  if (root.shown !== shown) {
    /** @type {HTMLElement[]} */
    const parts = [];
    if (!isComing) {
      const field = Object.assign(make("input"), { maxLength: 40, autocomplete: "off", name: "name" });
      const label = make("label", "", texts.name, field);
      const join = Object.assign(makeButton(texts.join, "lock", null), { type: "submit" });
      const form = make("form", "door", label, make("p", "note", texts.name_why), join);
      form.onsubmit = (event) => {
        event.preventDefault();
        sendAct({ do: "join", name: field.value, asked: askedPlace });
      };
      field.onkeydown = (event) => event.stopPropagation(); // Streamlit has keys of its own
      parts.push(make("h1", "ask", heading), formatted("p", "goal", goal), form, make("p", "note", what));
    }
    root.replaceChildren(...parts, troubleOf(""));
  }
  root.shown = shown;
  elementIn(root, ".problem").textContent = problem;
}

/** @param {SeatRoot} root @param {SeatPage} data */
function drawLine(root, data) {
  const { code, texts, token = "", link = "", qr, kept = {}, not_taken, needs_help = false, along } = data;
  release(code, [...Object.keys(kept), ...(not_taken ? [not_taken.key] : [])]);
  for (const key of Object.keys(kept)) delete since[key];
  if (not_taken) delete since[not_taken.key];
  holdOf(code, { token, along });
  followRoom(root, tick);
  root.shown = "";
  const before = root.querySelector(".saving")?.textContent ?? "";
  const saving = Object.assign(make("p", "saving", before), { role: "status" });
  const help = makeToggle(texts.help, "hint", needs_help, () => sendAct({ do: "help", needs_help: !needs_help }));
  const field = Object.assign(make("input"), { value: link, readOnly: true });
  field.onfocus = () => field.select();
  field.onkeydown = (event) => event.stopPropagation();
  const copy = makeButton(texts.copy, "hint", () => {
    field.select();
    // A page without https has no other clipboard; where this one fails, the link is marked.
    if (!document.execCommand("copy")) return;
    copy.textContent = texts.copied;
    copy.focus();
  });
  copy.ariaLive = "polite";
  const leave = makeButton(texts.somebody, "quiet", () => {
    holdOf(code, { token: "", waiting: {} });
    isLinkRead = true;
    askedPlace = drawPlace(); // for somebody else
    sendAct({ do: "leave" });
  });
  const place = make(
    "details",
    "place-of",
    make("summary", "", data.you),
    make("p", "note", data.until),
    !isKept(roomKey(code)) && make("p", "note", texts.keep_link),
    make("label", "", texts.other, field),
    copy,
    qr && qrPicture(qr, texts.scan),
    make("p", "note", texts.other_what),
    leave,
  );
  place.ontoggle = () => place.open && !qr && sendAct({ do: "device" });
  const foot = make("div", "foot", help, needs_help && make("span", "note", texts.helped), place);
  renew(root, [troubleOf(not_taken?.reason ?? data.problem), saving, foot]);
  sayWaiting();
}

/** @param {string | undefined} text */
const troubleOf = (text) => Object.assign(make("p", "problem", text), { role: "alert" });

/** @param {string} answer */
const inCode = (answer) => answer.replaceAll("%", "%25").replaceAll("~", "%7E");

// The room is deleted, or there never was one: what this browser has answered in it can be taken along.
/** @param {SeatRoot} root @param {SeatPage} data */
function drawGone(root, data) {
  const { code, texts, gone = "", fields } = data;
  const { along, waiting } = heldOf(code);
  const foot = make("div", "foot");
  for (const { lesson, title, before, count, answers } of along.filter((one) => one.lesson)) {
    // As a link has them (pages/learn/_lessons/place.py), and what the room did not take any more.
    const late = Object.entries(waiting).flatMap(([key, { answer, language }]) => {
      const number = Number(key.split(".")[0]) - before;
      return number > 0 && number <= count ? [`${number}${language && `.${language}`}-${inCode(answer)}`] : [];
    });
    const query = new URLSearchParams({ lesson, answers: [answers, ...late].filter(Boolean).join("~") });
    const name = title ? `${texts.along}: ${title}` : texts.along;
    foot.append(Object.assign(makeLink(name, `./lessons?${query}${fields}`), { className: "lock" }));
  }
  root.shown = "";
  root.replaceChildren(troubleOf(gone), foot);
}
