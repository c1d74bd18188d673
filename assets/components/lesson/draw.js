// Draw the row of weights: a bar for each word, dragged or moved by keys; the others give way, so that the sum stays 1,
// those that were not moved yet before those that were.
// Left and right choose a word, up and down change its weight. Answer: ``3:60,7:40``, in per cent.
import { claim, make } from "../page/elements.js";
import { fill, isRtl } from "../page/wording.js";
import { evenly, readRow, withWeight, writtenRow } from "./row.js";
import { quoted } from "./words.js";

const STEP = 5; // per cents of an arrow key
const LEAST_ROOM = 62; // pixels of a word whose bar stands above it

/** @typedef {import("./words.js").QuestionSentence & { kind: "draw" }} DrawQuestion */

/** @param {import("./screen.js").Asked<DrawQuestion>} asked */
export function drawRow({ root, question, texts, answer, change }) {
  const { words, query, queries } = question;
  let row = readRow(answer, words.length) ?? evenly(words.length);
  /** @type {Set<number>} */
  const held = new Set(); // words whose bars were moved
  const rtl = isRtl(words);
  const bars = words.map((word, at) => barOf(word, at));
  const box = make("div", "bars", ...bars.map(({ whole }) => whole));
  const title = fill(texts.bars, { query: quoted(queries[query]) });
  Object.assign(box, { role: "group", ariaLabel: title, dir: rtl ? "rtl" : "ltr" });

  /** @param {string} word @param {number} at */
  function barOf(word, at) {
    const looks = at === query && words[query] === queries[query];
    const level = make("div", "level");
    const share = make("output");
    const track = make("div", "track", level);
    const limits = { ariaValueMin: "0", ariaValueMax: "100" };
    Object.assign(track, { tabIndex: at === 0 ? 0 : -1, role: "slider", ariaLabel: word, ...limits });
    const name = make("bdi", "", word);
    const note = looks && make("span", "note", texts.looking);
    const whole = make("div", looks ? "bar looking" : "bar", share, track, name, note);
    track.addEventListener("pointerdown", (event) => grab(event, at));
    track.addEventListener("keydown", (event) => press(event, at));
    track.addEventListener("focus", () => stand(at));
    name.addEventListener("click", () => track.focus());
    return { whole, track, level, share };
  }

  /** @param {PointerEvent} event @param {number} at */
  function grab(event, at) {
    const { track } = bars[at];
    event.preventDefault();
    track.setPointerCapture(event.pointerId);
    track.focus();
    /** @param {PointerEvent} event */
    const drag = ({ clientX, clientY }) => {
      const { left, top, width, height } = track.getBoundingClientRect();
      const across = rtl ? (left + width - clientX) / width : (clientX - left) / width;
      set(at, 100 * (box.classList.contains("beside") ? across : (top + height - clientY) / height));
    };
    const end = () => {
      track.removeEventListener("pointermove", drag);
      tell(at);
    };
    track.addEventListener("pointermove", drag);
    for (const act of ["pointerup", "pointercancel"]) track.addEventListener(act, end, { once: true });
    drag(event);
  }

  /** @param {KeyboardEvent} event @param {number} at */
  function press(event, at) {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (ctrlKey || metaKey || altKey) return;
    /** @type {Record<string, number>} */
    const steps = { ArrowUp: STEP, ArrowDown: -STEP, PageUp: 4 * STEP, PageDown: -4 * STEP };
    const by = steps[key];
    const onward = rtl ? "ArrowLeft" : "ArrowRight";
    if (by) set(at, row[at] + by);
    else if (key === "Home") set(at, 0);
    else if (key === "End") set(at, 100);
    else if (key === "ArrowLeft" || key === "ArrowRight")
      bars[Math.min(Math.max(at + (key === onward ? 1 : -1), 0), bars.length - 1)].track.focus();
    else return;
    claim(event);
    tell(at);
  }

  /** @param {number} at @param {number} share */
  function set(at, share) {
    row = withWeight(row, at, share, held);
    held.add(at);
    show();
    answerNow = writtenRow(row);
    change(answerNow, "");
  }
  // A drag is announced when it ends.
  /** @param {number} at */
  function tell(at) {
    if (answerNow) change(answerNow, fill(texts.bar, { word: quoted(words[at]), share: row[at] }));
  }
  /** @param {number} at */
  function stand(at) {
    bars.forEach(({ track }, key) => {
      track.tabIndex = key === at ? 0 : -1;
    });
  }
  let answerNow = answer;
  function show() {
    bars.forEach(({ track, level, share, whole }, at) => {
      level.style.setProperty("--share", `${row[at]}%`);
      share.textContent = `${row[at]}%`;
      whole.classList.toggle("none", row[at] === 0);
      Object.assign(track, { ariaValueNow: String(row[at]), ariaValueText: `${words[at]} ${row[at]} %` });
    });
  }
  show();
  // Bars stand above words where there is room for them in one line.
  const layOut = () => {
    const size = parseFloat(getComputedStyle(root).fontSize) / 16;
    box.classList.toggle("beside", root.clientWidth / words.length < LEAST_ROOM * size);
  };
  layOut();
  new ResizeObserver(layOut).observe(box);
  return box;
}
