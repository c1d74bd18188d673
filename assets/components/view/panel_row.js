// The sentences of a view and their drawings. Where there is no room for all, you swipe between the drawings, and each has
// a button above; the edge of the next one is visible. The drawing in sight is in focus: its words stay in sight above,
// and the matrices below are those of its sentence.
import { make, makeButton, renew } from "../page/elements.js";
import { oneTabStop } from "../page/tab_stop.js";
import { apart } from "../page/wording.js";

const BESIDE = 800; // pixels in which two panels have room beside each other
const ENDED = 120; // milliseconds without a scroll, after which a swipe has ended

export class PanelRow {
  /** @type {HTMLElement[]} of each panel its title and its words */
  heads = [];
  ending = 0;
  arranged = ""; // how many panels stand in how many pixels
  room = 0; // pixels of each of them there

  /**
   * @param {HTMLElement} root of the view
   * @param {(nth: number) => void} lookAtPanel
   */
  constructor(root, lookAtPanel) {
    this.root = root;
    this.lookAtPanel = lookAtPanel;
    this.sentences = make("div", "sentences");
    this.panels = make("div", "panels");
    this.names = Object.assign(make("div", "names segments"), { role: "toolbar" });
    this.panels.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  /**
   * @param {HTMLElement[]} heads
   * @param {HTMLElement[]} boxes
   * @param {string[]} titles
   * @param {string} name what the row of their buttons is called
   */
  show(heads, boxes, titles, name) {
    this.heads = heads;
    this.names.ariaLabel = name;
    const buttons = apart(titles).map((title, nth) => makeButton(title, "", () => this.lookAtPanel(nth)));
    for (const one of buttons) one.dir = "auto";
    renew(this.names, buttons.length > 1 ? buttons : []);
    this.sentences.replaceChildren(this.names, ...heads);
    this.panels.replaceChildren(...boxes);
  }

  // Before anything is drawn: there may be room for them beside each other, or no longer. Returns the pixels from side to
  // side of a drawing, which is laid out for that only where they may be others.
  /** @param {number} width of the view */
  arrange(width) {
    const { length } = this.heads;
    this.swiped = length > 1 && width < BESIDE;
    this.root.classList.toggle("swiped", this.swiped);
    this.names.hidden = !this.swiped;
    const [arranged, first] = [`${length} in ${width}`, this.panels.children[0]];
    if (this.arranged !== arranged) Object.assign(this, { arranged, room: first.clientWidth });
    return this.room;
  }

  // The panel in focus is the one in sight.
  /** @param {number} nth */
  update(nth) {
    this.heads.forEach((head, at) => {
      head.classList.toggle("behind", this.swiped && at !== nth);
    });
    if (!this.swiped) return;
    [...this.names.children].forEach((button, at) => {
      button.ariaPressed = String(at === nth);
    });
    oneTabStop(this.names);
    if (this.inSight !== nth) this.panels.scrollLeft = nth * this.#step;
  }

  get #step() {
    return (this.panels.scrollWidth - this.panels.clientWidth) / (this.heads.length - 1);
  }

  get inSight() {
    return Math.round(this.panels.scrollLeft / this.#step) || 0;
  }

  // When it has ended: a panel that is laid out anew meanwhile would be snapped back.
  #scrolled() {
    clearTimeout(this.ending);
    this.ending = window.setTimeout(() => {
      if (this.swiped && this.root.isConnected) this.lookAtPanel(this.inSight);
    }, ENDED);
  }
}
