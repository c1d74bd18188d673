// The path of one cell of a head as a part of a page: the cell in focus on Steps, the one of the question in a lesson.

import { arrival } from "../numbers/blobs.js";
import { stepsTo } from "../numbers/explanation.js";
import { openPayload } from "../numbers/payload.js";
import { elementIn } from "../page/elements.js";
import { follow, heldFocus, move, ready } from "../scene/address.js";
import { positionOf } from "../scene/focus_link.js";
import { followStep, stepInFocus } from "../scene/step.js";
import { fitHeight } from "../streamlit/adapter.js";
import { CellPathPicture } from "./cell_path.js";

/** @typedef {import("../numbers/payload.js").PayloadPanel} PayloadPanel */

/**
 * The path's data from the page.
 * @typedef {object} PathPage
 * @property {string} name of the layer (blobs.js)
 * @property {string} digest
 * @property {number} head
 * @property {number} query position
 * @property {number | null} key position; null for the key with the largest weight
 * @property {Record<string, string> | null} steps for each step of the page the stage that makes its matrix; null where
 *   the page has no steps
 * @property {{ q: string, k: string, output: string }} symbols
 * @property {number} shared how many heads share the key
 * @property {string[]} edits changes of the attention in words
 * @property {Record<string, string>} texts
 */

class PagePath {
  key = -1; // clicked here, on a page without steps
  step = ""; // the last step of the page that moved the slider
  drawnFrom = "";
  /** @type {string | undefined} */
  keyInFocus;

  /** @param {HTMLElement} root @param {PathPage} data @param {PayloadPanel} panel */
  constructor(root, data, panel) {
    this.root = root;
    this.data = data;
    this.panel = panel;
    this.picture = new CellPathPicture(() => this.data.texts);
    this.picture.choose = (key) => this.#choose(key);
    root.append(this.picture.root);
  }

  /** @param {PathPage} data @param {PayloadPanel} panel */
  open(data, panel) {
    this.data = data;
    this.panel = panel;
    this.key = -1;
    this.keyInFocus ??= heldFocus().key_token;
    follow(this.root, () => this.#followFocus());
    if (data.steps) followStep(this.root, () => this.#followStep());
    else this.update();
  }

  // Scroll to the drawing when its cell was chosen in another picture.
  #followFocus() {
    const before = this.keyInFocus;
    this.keyInFocus = heldFocus().key_token;
    this.update();
    if (this.keyInFocus && this.keyInFocus !== before) this.picture.root.scrollIntoView({ block: "nearest" });
  }

  // The page shows another step: the slider moves to the stage that makes its matrix.
  #followStep() {
    const step = stepInFocus();
    const stage = this.data.steps?.[step];
    this.root.hidden = stage === undefined;
    this.update();
    if (step === this.step) return;
    this.step = step;
    if (stage !== undefined) this.picture.goToStage(stage);
  }

  // The cell in focus, or the one that the page names or that was clicked. Without a key: the largest weight.
  #place() {
    const { data, panel } = this;
    const [layer] = panel.layers.values();
    /** @type {Partial<import("../scene/address.js").LinkFocus>} */
    const held = data.steps ? heldFocus() : {};
    const { token = "", key_token: key = "" } = held;
    const named = positionOf(panel.names, token);
    const row = named >= 0 ? named : data.query;
    const chosen = data.steps ? positionOf(panel.keyNames, key) : this.key;
    const weights = layer.row(data.head, row);
    const largest = weights.indexOf(weights.reduce((most, one) => Math.max(most, one)));
    return { head: data.head, row, column: chosen >= 0 ? chosen : (data.key ?? largest) };
  }

  update() {
    const { data, panel } = this;
    const { symbols, shared, edits } = data;
    const place = this.#place();
    const from = JSON.stringify([place, data]);
    if (from === this.drawnFrom) return;
    this.drawnFrom = from;
    const [layer] = panel.layers.values();
    const steps = stepsTo(layer, "weights", place, panel.keys, data.texts.path_sink) ?? [];
    const words = { from: panel.tokens[place.row], to: panel.keys[place.column] };
    this.picture.show({ ...words, steps, mixed: { layer, place }, symbols, shared, edits });
  }

  /** @param {number} key */
  #choose(key) {
    this.key = key;
    if (this.data.steps) move({ key_token: this.panel.keyNames[key] });
    else this.update();
  }
}

/** @param {import("../streamlit/adapter.js").Mounted<PathPage>} mounted */
export default async function ({ data, parentElement }) {
  /** @type {HTMLElement & { turn?: number, path?: PagePath }} */
  const root = elementIn(parentElement, ".page-path");
  root.turn = (root.turn ?? 0) + 1;
  const { turn } = root;
  const [bytes] = await Promise.all([arrival(data.name, data.digest), ready]);
  if (root.turn !== turn) return; // another head has come meanwhile
  const [panel] = openPayload(bytes);
  root.path ??= new PagePath(root, data, panel);
  root.path.open(data, panel);
  fitHeight(root);
}
