// A panel as it is drawn: two lists of tokens, those that look and those that are looked at. Where a text looks at
// itself they are one list. Pieces can be joined into words, and special tokens left out.

/** @typedef {"query" | "key"} Side */
/** @typedef {Side | "token"} TokenSide of an element of a token, "token" where there is one for both sides */
/** @typedef {import("../view/head_view.js").Header} Header */

/**
 * The weights of a layer as they are drawn: as they were sent, of words, or without special tokens.
 * @typedef {object} AnyLayer
 * @property {number} number
 * @property {number[]} heads
 * @property {number} nQuery
 * @property {number} nKey
 * @property {(head: number, query: number, key: number) => boolean} sees
 * @property {(head: number, query: number, key: number) => number} weight
 * @property {(head: number, query: number) => Float32Array} row
 * @property {(head: number, query: number, key: number) => number} [score]
 * @property {(head: number, query: number) => number} [away] what a query takes from the keys that are left out
 * @property {Set<number>} [hidden] these keys
 */

/**
 * One sentence as it is drawn. `two` says that it has two lists of tokens; `wordOf` and `pieceOf` where a token of
 * the page is here, and the other way round.
 * @typedef {object} Panel
 * @property {string} title
 * @property {string[]} tokens those that look
 * @property {string[]} keys those that are looked at
 * @property {Map<number, AnyLayer>} layers
 * @property {Map<number, Rescaled>} rescaled layers without the special tokens
 * @property {number} nth
 * @property {string} id
 * @property {boolean} two
 * @property {{ query: Set<number>, key: Set<number> }} special which tokens of each side are no words
 * @property {{ query: Set<number>, key: Set<number> }} unknown and which are outside the vocabulary
 * @property {(side: Side, at: number) => number} wordOf
 * @property {(side: Side, at: number) => number} pieceOf
 */

// The tokens of one side of a panel: those that look, or those that are looked at.
/** @param {{ tokens: string[], keys?: string[] }} panel @param {TokenSide} side */
export const listOf = (panel, side) => (side === "key" ? (panel.keys ?? panel.tokens) : panel.tokens);

// How many tokens a panel has, on its longer side.
/** @param {{ tokens: string[], keys?: string[] }} panel */
export const longestOf = (panel) => Math.max(panel.tokens.length, listOf(panel, "key").length);

// A layer whose pieces are joined to words: a word takes the mean of its pieces' rows and gives their sum
// (Clark et al. 2019). `queries` and `keys` have the word's number for each piece, rising from 0.
class Grouped {
  /** @param {AnyLayer} layer @param {number[]} queries @param {number[]} keys */
  constructor(layer, queries, keys) {
    this.layer = layer;
    this.keys = keys;
    this.number = layer.number;
    this.heads = layer.heads;
    this.from = piecesOf(queries);
    this.to = piecesOf(keys);
    this.nQuery = this.from.length;
    this.nKey = this.to.length;
  }

  /** @param {number} head @param {number} query @param {number} key */
  sees(head, query, key) {
    return this.from[query].some((q) => this.to[key].some((k) => this.layer.sees(head, q, k)));
  }

  /** @param {number} head @param {number} query @param {number} key */
  weight(head, query, key) {
    const from = this.from[query];
    const sum = from.reduce((s, q) => s + this.to[key].reduce((t, k) => t + this.layer.weight(head, q, k), 0), 0);
    return sum / from.length;
  }

  /** @param {number} head @param {number} query */
  row(head, query) {
    const joined = new Float32Array(this.nKey);
    const from = this.from[query];
    for (const q of from) {
      this.layer.row(head, q).forEach((w, key) => {
        joined[this.keys[key]] += w / from.length;
      });
    }
    return joined;
  }
}

/** @param {number[]} groups */
function piecesOf(groups) {
  /** @type {number[][]} */
  const pieces = [];
  groups.forEach((word, piece) => {
    pieces[word] = [...(pieces[word] ?? []), piece];
  });
  return pieces;
}

// A layer without the keys that are hidden: what went to them is shared out, so that each row sums to 1.
class Rescaled {
  /** @param {AnyLayer} layer @param {Set<number>} hidden */
  constructor(layer, hidden) {
    this.layer = layer;
    this.hidden = hidden;
    this.number = layer.number;
    this.heads = layer.heads;
    this.nQuery = layer.nQuery;
    this.nKey = layer.nKey;
    /** @type {Map<number, { kept: number, away: number }>} */
    this.sums = new Map();
  }

  // The weight of a query on the keys that stay, and on the hidden ones.
  /** @param {number} head @param {number} query */
  shares(head, query) {
    const name = head * this.nQuery + query;
    const known = this.sums.get(name);
    if (known) return known;
    const shares = { kept: 0, away: 0 };
    this.layer.row(head, query).forEach((w, key) => {
      shares[this.hidden.has(key) ? "away" : "kept"] += w;
    });
    this.sums.set(name, shares);
    return shares;
  }

  /** @param {number} head @param {number} query */
  away = (head, query) => this.shares(head, query).away;

  /** @param {number} head @param {number} query @param {number} key */
  sees = (head, query, key) => !this.hidden.has(key) && this.layer.sees(head, query, key);

  /** @param {number} head @param {number} query @param {number} key */
  score = (head, query, key) => this.layer.score?.(head, query, key) ?? NaN;

  /** @param {number} head @param {number} query @param {number} key */
  weight(head, query, key) {
    const { kept } = this.shares(head, query);
    return this.hidden.has(key) || !kept ? 0 : this.layer.weight(head, query, key) / kept;
  }

  /** @param {number} head @param {number} query */
  row(head, query) {
    const { kept } = this.shares(head, query);
    return this.layer.row(head, query).map((w, key) => (this.hidden.has(key) || !kept ? 0 : w / kept));
  }
}

/**
 * A panel of a payload with its words joined or not.
 * @param {import("./payload.js").PayloadPanel} panel
 * @param {Header} header
 * @param {number} nth
 * @param {boolean} words
 * @returns {Panel}
 */
export function prepared(panel, header, nth, words) {
  const groups = header.groups?.[nth] ?? null;
  const two = panel.keys !== panel.tokens;
  const [special, unknown] = [header.special[nth], header.unknown?.[nth]].map(bySide);
  /** @param {Side} _ @param {number} at */
  const same = (_, at) => at;
  const pieces = {
    ...panel,
    rescaled: new Map(),
    two,
    nth,
    id: `${header.id}-${nth}`,
    special,
    unknown,
    wordOf: same,
    pieceOf: same,
  };
  if (!words || !groups) return pieces;
  /** @type {Panel["wordOf"]} */
  const wordOf = (side, at) => groups[side].of[at] ?? 0;
  /** @type {(side: Side, positions: Set<number>) => Set<number>} */
  const wordsOf = (side, positions) => new Set([...positions].map((at) => wordOf(side, at)));
  const { labels } = groups.query;
  return {
    ...pieces,
    layers: new Map([...panel.layers].map(([n, layer]) => [n, new Grouped(layer, groups.query.of, groups.key.of)])),
    tokens: labels,
    keys: two ? groups.key.labels : labels,
    special: { query: wordsOf("query", special.query), key: wordsOf("key", special.key) },
    unknown: { query: wordsOf("query", unknown.query), key: wordsOf("key", unknown.key) },
    wordOf,
    pieceOf: (side, at) => Math.max(0, groups[side].of.indexOf(at)),
  };
}

// Positions of those that look and of those that are looked at, as a header has them.
/** @param {number[][]} [positions] */
export const bySide = ([query, key] = [[], []]) => ({ query: new Set(query), key: new Set(key) });

/**
 * The questions of each head in a layer of a panel; only heads of the last layer are asked any.
 * @param {Header} header
 * @param {number} nth
 * @param {number} number
 */
export const questionsOf = (header, nth, number) =>
  number === header.layers - 1 ? (header.questions?.[nth] ?? []) : [];

/**
 * The rows of a layer of a panel in which none of these heads has anything to find.
 * @param {Header} header
 * @param {number} nth
 * @param {number} number
 * @param {number[]} heads
 * @param {Panel["wordOf"]} wordOf
 */
export function nothingIn(header, nth, number, heads, wordOf = (_, at) => at) {
  const asked = questionsOf(header, nth, number);
  const [first = [], ...others] = heads.map((head) => asked[head]?.nothing ?? []);
  const rows = first.filter((at) => others.every((nothing) => nothing.includes(at)));
  return [...new Set(rows.map((at) => wordOf("query", at)))];
}

/**
 * The panel's layer of that number, rescaled where special tokens are hidden; the same object each time.
 * @param {Panel} panel
 * @param {number} number
 * @param {boolean} rescaled
 * @returns {AnyLayer}
 */
export function layerOf(panel, number, rescaled) {
  const [first] = panel.layers.values();
  const layer = panel.layers.get(number) ?? first;
  if (!rescaled || !panel.special.key.size) return layer;
  const known = panel.rescaled.get(layer.number) ?? new Rescaled(layer, panel.special.key);
  panel.rescaled.set(layer.number, known);
  return known;
}
