// The page What if where the browser computes: a change is chosen, listed and taken back here; the sentence before and
// after it is drawn beside each other.
import { make, makeButton, renew } from "./elements.js";
import { fill, isolated } from "./wording.js";

/** @typedef {import("../engine/edits.js").Edit} Edit */
/** @typedef {import("../engine/sentence.js").ReadSentence} ReadSentence */
/** @typedef {import("../view/selection.js").Selection} Selection */

/** @type {Record<string, ("layer" | "head" | "from" | "to")[]>} */
const FIELDS_OF_KIND = {
  cut: ["from", "to", "layer", "head"],
  hide: ["to", "layer", "head"],
  off: ["layer", "head"],
  row: ["from", "layer", "head"],
};
const EVERY = ""; // layers, heads or words in a field

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
    this.root = make("details", "experiment");
    this.summary = make("summary");
    this.form = make("form", "choice");
    this.numbers = make("div", "own-row");
    this.list = make("ul", "changes");
    this.form.onsubmit = (event) => {
      event.preventDefault();
      this.#apply();
    };
    this.root.append(this.summary, this.form, this.numbers, this.list);
    this.root.ontoggle = () => this.root.open && this.#build();
  }

  /** @param {Record<string, string>} texts */
  speak(texts) {
    this.texts = texts;
    this.summary.textContent = texts["what_if.heading"];
  }

  // The sentence without changes, and those in effect.
  /** @param {ReadSentence} read @param {Edit[]} edits @param {Selection} selection */
  show(read, edits, selection) {
    this.read = read;
    this.edits = edits;
    if (edits.length) this.root.open = true;
    this.follow(selection);
    const items = edits.map((edit, nth) => {
      const item = make("li", "", `${this.inWords(edit, read)} `);
      const lift = makeButton("✕", "", () => this.change(edits.filter((_, at) => at !== nth)));
      lift.title = lift.ariaLabel = this.texts["what_if.lift"];
      item.append(lift);
      return item;
    });
    const reset = makeButton(this.texts["what_if.reset"], "alone", () => this.change([]));
    renew(this.list, edits.length > 1 ? [...items, make("li")] : items);
    if (edits.length > 1) this.list.lastElementChild?.append(reset);
    this.list.hidden = !edits.length;
  }

  // The fields begin with what the view looks at: the chosen word, and the one that its head looks at most.
  /** @param {Selection} selection */
  follow(selection) {
    const { read, values } = this;
    if (!read) return;
    const query = selection.single?.side === "query" ? selection.single.token : null;
    const { chosenHead } = selection;
    const layer = Math.min(selection.state.layer, read.layers.length - 1);
    const place = JSON.stringify([query, chosenHead, layer, read.cut.text]);
    if (place === this.place) return;
    this.place = place;
    const from = query ?? 0;
    const row = read.layers[layer].row(
      Math.min(chosenHead, read.model.facts.h - 1),
      Math.min(from, read.cut.ids.length - 1),
    );
    const to = row.indexOf(row.reduce((most, one) => Math.max(most, one)));
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
    /** @type {(label: string, options: [value: string, word: string][], value: string, act: (value: string) => void) => HTMLElement} */
    const choice = (label, options, value, act) => {
      const select = make("select");
      select.append(...options.map(([own, word]) => new Option(word, own, false, own === value)));
      select.onchange = () => {
        act(select.value);
        this.#build();
      };
      const field = make("label", "size");
      field.append(make("span", "", label), select);
      return field;
    };
    /** @param {number} count @returns {[string, string][]} */
    const counted = (count) => Array.from({ length: count }, (_, at) => [String(at + 1), String(at + 1)]);
    /** @type {[string, string]} */
    const all = [EVERY, texts["what_if.all"]];
    /** @type {[string, string][]} */
    const words = read.cut.labels.map((label, at) => [String(at + 1), isolated(label)]);
    const isRow = this.kind === "row"; // of one head of one layer
    const [layers, heads] = [counted(read.layers.length), counted(read.model.facts.h)];
    /** @type {Record<string, [string, string][]>} */
    const options = {
      from: words,
      to: words,
      layer: isRow ? layers : [all, ...layers],
      head: isRow ? heads : [all, ...heads],
    };
    /** @type {Record<string, string>} */
    const kinds = {
      cut: texts["what_if.cut"],
      hide: texts["static.hide"],
      off: texts["what_if.off"],
      row: texts["static.row"],
    };
    if (isRow) for (const name of ["layer", "head"]) values[name] ||= "1";
    const fields = FIELDS_OF_KIND[this.kind].map((name) =>
      choice(texts[`what_if.${name}`], options[name], values[name], (value) => {
        values[name] = value;
        this.row = null;
      }),
    );
    const kind = choice(texts["what_if.kind"], Object.entries(kinds), this.kind, (value) => {
      this.kind = value;
    });
    const apply = Object.assign(make("button", "primary", texts["what_if.apply"]), { type: "submit" });
    renew(this.form, [kind, ...fields, apply]);
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
      const label = make("label", "", isolated(read.cut.labels[key]));
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
      label.append(input);
      return label;
    });
    this.numbers.replaceChildren(make("p", "", texts["static.row_help"]), ...fields);
  }

  #apply() {
    const { kind, values, read } = this;
    if (!read) return;
    /** @param {string} name */
    const place = (name) =>
      FIELDS_OF_KIND[kind].some((one) => one === name) && values[name] ? Number(values[name]) - 1 : null;
    /** @param {string} name */
    const places = (name) => {
      const at = place(name);
      return at === null ? null : [at];
    };
    const sum = this.row?.reduce((all, one) => all + one, 0) ?? 0;
    if (kind === "row" && !sum) return;
    /** @type {Edit} */
    const edit = {
      kind: kind === "hide" ? "cut" : kind,
      layer: place("layer"),
      heads: places("head"),
      rows: places("from"),
      keys: places("to"),
      by: 1,
      mask: "",
      values: kind === "row" && this.row ? this.row.map((one) => Math.floor((one / sum) * 10_000) / 10_000) : null,
    };
    const others = this.edits.filter((one) => JSON.stringify(one) !== JSON.stringify(edit));
    this.change([...others, edit]);
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
