// The page What if where the browser computes: a change is chosen, listed and taken back here; the sentence before and
// after it is drawn beside each other.
import { withEdits } from "../engine/edits.js";
import { make, makeButton, makeChoice, named, renew } from "./elements.js";
import { fill, isolated } from "./wording.js";

/** @typedef {import("../engine/edits.js").Edit} Edit */
/** @typedef {import("../engine/sentence.js").ReadSentence} ReadSentence */
/** @typedef {import("../view/selection.js").Selection} Selection */

const PLACES = /** @type {const} */ (["layer", "head", "from", "to"]); // as a link orders them
/** @type {Record<string, { name: string, fields: (typeof PLACES)[number][] }>} */
const CHANGE_KINDS = {
  cut: { name: "what_if.cut", fields: ["from", "to", "layer", "head"] },
  hide: { name: "static.hide", fields: ["to", "layer", "head"] },
  off: { name: "what_if.off", fields: ["layer", "head"] },
  row: { name: "static.row", fields: ["from", "layer", "head"] },
};
const EVERY = ""; // what a field says that means all layers or all heads

export class Experiment {
  kind = "cut";
  /** @type {Record<string, string>} what the fields say, from 1 */
  values = { layer: EVERY, head: EVERY, from: "", to: "" };
  /** @type {number[] | null} the row of one's own, as it is being written */
  row = null;
  /** @type {Record<string, string>} */
  texts = {};
  /** @type {ReadSentence | null} */
  read = null;
  /** @type {Edit[]} */
  edits = [];
  place = "";

  /** @param {(edits: Edit[]) => void} change */
  constructor(change) {
    this.change = change;
    this.summary = make("summary");
    this.choice = make("div", "choice");
    this.numbers = make("div", "own-row");
    this.list = make("ul", "changes");
    const form = Object.assign(make("form", "", this.choice, this.numbers), { noValidate: true });
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#apply();
    };
    this.root = make("details", "experiment", this.summary, form, this.list);
    this.root.ontoggle = () => this.root.open && this.#build();
  }

  /** @param {Record<string, string>} texts */
  speak(texts) {
    this.texts = texts;
    this.summary.textContent = texts["what_if.heading"];
    if (this.root.open) this.#build();
  }

  // The sentence without changes, and those in effect.
  /** @param {ReadSentence} read @param {Edit[]} edits @param {Selection} selection */
  show(read, edits, selection) {
    this.read = read;
    this.edits = edits;
    if (edits.length) this.root.open = true;
    this.follow(selection);
    const items = edits.map((edit, nth) => {
      const lift = makeButton("✕", "", () => this.change(edits.filter((_, at) => at !== nth)));
      return make("li", "", `${this.inWords(edit, read)} `, named(lift, this.texts["what_if.lift"]));
    });
    const reset = makeButton(this.texts["what_if.reset"], "alone", () => this.change([]));
    renew(this.list, edits.length > 1 ? [...items, make("li", "", reset)] : items);
    this.list.hidden = !edits.length;
  }

  // The fields begin with what the view looks at: the chosen word, and the one that its head looks at most.
  /** @param {Selection} selection */
  follow(selection) {
    const { read, values } = this;
    if (!read) return;
    const query = selection.single?.side === "query" ? selection.single.token : null;
    const { chosenHead } = selection;
    const { layer } = selection.state;
    const place = JSON.stringify([query, chosenHead, layer, read.cut.text]);
    if (place === this.place) return;
    this.place = place;
    const from = Math.min(query ?? 0, read.words.length - 1); // of the other sentence there may be more
    const row = read.layers[layer].row(chosenHead, from);
    const to = row.indexOf(Math.max(...row));
    Object.assign(values, {
      from: String(from + 1),
      to: String(to + 1),
      head: String(chosenHead + 1),
      layer: String(layer + 1),
    });
    this.row = null;
    if (this.root.open) this.#build();
  }

  #build() {
    const { read, texts, values } = this;
    if (!read) return;
    const isRow = this.kind === "row"; // of one head of one layer
    if (isRow) for (const name of ["layer", "head"]) values[name] ||= "1";
    const words = read.cut.labels.map(isolated);
    const counts = { from: words.length, to: words.length, layer: read.layers.length, head: read.model.facts.h };
    const fields = CHANGE_KINDS[this.kind].fields.map((name) => {
      const isPlace = name === "layer" || name === "head";
      const numbers = Array.from({ length: counts[name] }, (_, at) => String(at + 1));
      /** @param {string} value */
      const choose = (value) => {
        values[name] = value;
        this.row = null;
        this.#build();
      };
      /** @param {string} value */
      const wordOf = (value) => (isPlace ? value || texts["what_if.all"] : words[Number(value) - 1]);
      const offered = isPlace && !isRow ? [EVERY, ...numbers] : numbers;
      return makeChoice(texts[`what_if.${name}`], offered, values[name], choose, wordOf);
    });
    /** @param {string} value */
    const choose = (value) => {
      this.kind = value;
      this.#build();
    };
    const nameOf = (/** @type {string} */ kind) => texts[CHANGE_KINDS[kind].name];
    const kind = makeChoice(texts["what_if.kind"], Object.keys(CHANGE_KINDS), this.kind, choose, nameOf);
    const apply = Object.assign(make("button", "primary", texts["what_if.apply"]), { type: "submit" });
    renew(this.choice, [kind, ...fields, apply]);
    this.#buildRow(isRow);
  }

  // A number for each word that the row looks at; together they are made 1 when the row is applied.
  /** @param {boolean} isRow */
  #buildRow(isRow) {
    const { read, texts, values } = this;
    this.numbers.hidden = !isRow;
    if (!isRow || !read) return;
    const [layer, head, query] = [values.layer, values.head, values.from].map((value) => Number(value) - 1);
    this.row ??= [...read.layers[layer].row(head, query)].map((weight) => Math.round(weight * 100) / 100);
    const { row } = this;
    const seen = [...row.keys()].filter((key) => read.layers[layer].sees(head, query, key));
    const fields = seen.map((key) => {
      const input = Object.assign(make("input"), {
        type: "number",
        min: 0,
        max: 1,
        step: 0.05,
        value: String(row[key]),
      });
      input.oninput = () => {
        row[key] = Math.max(0, Number(input.value) || 0);
      };
      return make("label", "", isolated(read.cut.labels[key]), input);
    });
    this.numbers.replaceChildren(make("p", "", texts["static.row_help"]), ...fields);
  }

  #apply() {
    const { kind, row, values } = this;
    const sum = row?.reduce((all, one) => all + one, 0) ?? 0;
    if (kind === "row" && !sum) return;
    const named = PLACES.filter((name) => CHANGE_KINDS[kind].fields.includes(name) && values[name]);
    const shares = kind === "row" && row?.map((one) => Math.floor((one / sum) * 10_000) / 10_000);
    const fields = [
      ...named.map((name) => `${name}=${values[name]}`),
      ...(shares ? [`weights=${shares.join(" ")}`] : []),
    ];
    this.change(withEdits(this.edits, [kind === "hide" ? "cut" : kind, ...fields].join(",")));
  }

  /** @param {Edit} edit @param {ReadSentence} read */
  inWords({ kind, layer, heads, rows, keys, by, mask }, read) {
    const { texts } = this;
    /** @param {number[] | null} picked */
    const word = (picked) => {
      if (!picked) return texts["what_if.every_word"];
      const [first, last] = [picked[0], picked[picked.length - 1]].map(
        (at) => `“${isolated(read.cut.labels[at] ?? String(at + 1))}”`,
      );
      return picked.length > 1 ? `${first} … ${last}` : first;
    };
    const where =
      layer === null ? texts["what_if.in_all_layers"] : fill(texts["what_if.in_layer"], { layer: layer + 1 });
    const head = !heads
      ? texts["what_if.of_all_heads"]
      : heads.length > 1
        ? fill(texts["what_if.of_heads"], { first: heads[0] + 1, last: heads[heads.length - 1] + 1 })
        : fill(texts["what_if.of_head"], { head: heads[0] + 1 });
    const said = kind === "position" ? texts["what_if.unordered_says"] : texts[`what_if.${kind}_says`];
    return fill(said, { query: word(rows), key: word(keys), head, layer: where, by, mask });
  }
}
