// The focus: the heads that are on, the chosen tokens, and the weights that follow from them. No drawing.
//
// With the side "query" a focus asks what its tokens look at, with "key" who looks at them. For several tokens the
// weights are summed.
import { listOf } from "../numbers/panel.js";
import { exact, fill, isolated, paragraph, short } from "../page/wording.js";

/** @typedef {import("../numbers/panel.js").Side} Side */
/** @typedef {import("../numbers/panel.js").Panel} Panel */
/** @typedef {import("../numbers/panel.js").AnyLayer} AnyLayer */
/** @typedef {Record<Side, Set<number>>} TokensOfSides positions from 0 */

/**
 * @typedef {object} Focus
 * @property {Side} side
 * @property {number[]} tokens positions from 0
 */

export const MAX_NUMBERS = 6; // heads whose numbers stand beside a token; of more the mean
const NAMED = 5; // tokens that a sentence names
const WORTH_NAMING = 0.005;

// Arcs need one list of tokens: no text that looks at another one is drawn so.
/**
 * @param {string} drawing
 * @param {boolean} two do the tokens that look and those that are looked at belong to two texts?
 */
export const isDrawable = (drawing, two) => drawing !== "arcs" || !two;

// The heads that are on after a click on one: "toggle", "solo" (again: all), or "range" from the last one.
/**
 * @param {Set<number>} on
 * @param {number} head
 * @param {"toggle" | "solo" | "range"} how
 * @param {number[]} every
 * @param {number} [last]
 */
export function afterClick(on, head, how, every, last) {
  if (how === "solo") return new Set(on.size === 1 && on.has(head) ? every : [head]);
  if (how === "range") {
    const [from, to] = [every.indexOf(last ?? head), every.indexOf(head)].sort((a, b) => a - b);
    return new Set([...on, ...every.slice(from, to + 1)]);
  }
  const after = new Set(on);
  if (!after.delete(head)) after.add(head);
  return after;
}

// The one head that follows, or leads, the first that is on; of several or none the first, or the one before.
/** @param {Set<number>} on @param {number[]} every @param {number} by */
export function nextHead(on, every, by) {
  const at = Math.max(every.indexOf(Math.min(...on)), 0);
  return every[(at + (on.size !== 1 && by > 0 ? 0 : by) + every.length) % every.length];
}

// Tokens after a click on one: alone, or, with `more`, added to or taken from those that were chosen.
/**
 * @param {Focus | null | undefined} pinned
 * @param {Side} side
 * @param {number} token
 * @param {boolean} more
 * @returns {Focus | null}
 */
export function afterPick(pinned, side, token, more) {
  const same = pinned && pinned.side === side;
  if (!more || !same) {
    const released = same && pinned.tokens.length === 1 && pinned.tokens[0] === token;
    return released ? null : { side, tokens: [token] };
  }
  const tokens = pinned.tokens.includes(token)
    ? pinned.tokens.filter((other) => other !== token)
    : [...pinned.tokens, token].sort((a, b) => a - b);
  return tokens.length ? { side, tokens } : null;
}

// The choice in sentence `nth`, carried over to each sentence: the same token in the same place, or else wherever it
// is, or else the token that stands in its place.
/** @param {Panel[]} panels @param {number} nth @param {Focus | null} focus @returns {(Focus | null)[]} */
export function everywhere(panels, nth, focus) {
  if (!focus) return panels.map(() => focus);
  const own = listOf(panels[nth], focus.side);
  return panels.map((panel, other) => {
    if (other === nth) return focus;
    const tokens = listOf(panel, focus.side);
    const places = focus.tokens.map((at) => {
      const same = tokens[at] === own[at] ? at : tokens.indexOf(own[at]);
      return same < 0 ? inItsPlace(own, tokens, at) : same;
    });
    return { ...focus, tokens: [...new Set(places)].sort((a, b) => a - b) };
  });
}

// Where the token in the place of one that a sentence lacks stands: as far into the stretch in which both sentences
// differ, or at its end; where nothing stands in its place, the next token.
/** @param {string[]} own @param {string[]} tokens of the other sentence @param {number} at */
function inItsPlace(own, tokens, at) {
  const before = own.findLastIndex((token, nth) => nth < at && tokens.includes(token));
  const start = tokens.indexOf(own[before]);
  const next = own.slice(at).find((token) => tokens.indexOf(token) > start);
  const end = next === undefined ? tokens.length : tokens.indexOf(next);
  return Math.min(start + at - before, Math.max(start + 1, end - 1), tokens.length - 1);
}

// For one head the weights between a token and every token of the other side.
/** @param {AnyLayer} layer @param {number} head @param {Side} side @param {number} token */
function ofToken(layer, head, side, token) {
  if (side === "query") return layer.row(head, token);
  return Float32Array.from({ length: layer.nQuery }, (_, query) => layer.weight(head, query, token));
}

// For one head the weights between the focus and every token of the other side, summed over the focus.
/** @param {AnyLayer} layer @param {number} head @param {Focus} focus */
export function across(layer, head, focus) {
  const [first, ...others] = focus.tokens.map((token) => ofToken(layer, head, focus.side, token));
  if (!others.length) return first;
  return first.map((weight, i) => others.reduce((sum, other) => sum + other[i], weight));
}

// The mean over heads of `across`; zeros where no head is on.
/** @param {AnyLayer} layer @param {number[]} heads @param {Focus} focus */
export function meanAcross(layer, heads, focus) {
  const length = focus.side === "query" ? layer.nKey : layer.nQuery;
  const sum = new Float32Array(length);
  for (const head of heads) {
    across(layer, head, focus).forEach((weight, i) => {
      sum[i] += weight / heads.length;
    });
  }
  return sum;
}

// The weight below which nothing is drawn unless the user sets one: lower in a long text, whose weights are.
/** @param {number} tokens */
export const defaultThreshold = (tokens) => Math.min(0.02, 1 / tokens);

// The lines to draw: { head, query, key, weight }. Without a focus those of the queries from..to.
// `threshold` is the smallest weight, `count` the number for each token and head (0: all), `hidden` the tokens of
// each side that are left out.
/**
 * @param {AnyLayer} layer
 * @param {number[]} heads
 * @param {{ focus: Focus | null, from?: number, to?: number, threshold: number, count: number,
 *   hidden: TokensOfSides }} options
 */
export function linesOf(layer, heads, { focus, from = 0, to = layer.nQuery, threshold, count, hidden }) {
  const side = focus?.side ?? "query";
  const away = hidden[side === "query" ? "key" : "query"];
  const tokens = focus?.tokens ?? Array.from({ length: to - from }, (_, i) => from + i);
  /** @type {import("../pictures/curves.js").Line[]} */
  const lines = [];
  for (const head of heads) {
    for (const token of tokens) {
      if (hidden[side].has(token)) continue;
      const weights = ofToken(layer, head, side, token);
      for (const other of strongest(weights, { threshold, count, hidden: away })) {
        const [query, key] = side === "query" ? [token, other] : [other, token];
        lines.push({ head, query, key, weight: weights[other] });
      }
    }
  }
  return lines;
}

// Positions of the weights from `threshold` on, the largest `count` of them (0: all), largest first.
/** @param {ArrayLike<number>} weights @param {{ threshold?: number, count?: number, hidden?: Set<number> }} how */
export function strongest(weights, { threshold = 0, count = 0, hidden = new Set() } = {}) {
  /** @type {number[]} */
  const positions = [];
  for (let i = 0; i < weights.length; i++) {
    if (!(weights[i] >= threshold) || hidden.has(i)) continue;
    if (!count) positions.push(i);
    else if (positions.length < count || weights[i] > weights[positions[count - 1]]) {
      // A few of many: each in its place among those so far, which takes less time than sorting all.
      let at = Math.min(positions.length, count - 1);
      for (; at && weights[i] > weights[positions[at - 1]]; at--) positions[at] = positions[at - 1];
      positions[at] = i;
    }
  }
  return count ? positions : positions.sort((a, b) => weights[b] - weights[a] || a - b);
}

// "head 4: it looks at animal 0.92, street 0.03", for eyes and for screen readers.
/**
 * @param {Panel} panel
 * @param {AnyLayer} layer
 * @param {number[]} heads
 * @param {Focus | null} focus
 * @param {TokensOfSides} hidden
 * @param {Record<string, string>} texts
 */
export function spoken(panel, layer, heads, focus, hidden, texts) {
  if (!heads.length) return texts.no_head;
  if (!focus) return paragraph([texts.unchosen, layer.away && texts.rescaled], texts);
  const other = focus.side === "query" ? "key" : "query";
  const [own, others] = [listOf(panel, focus.side), listOf(panel, other)];
  const tokens = focus.tokens.map((token) => isolated(own[token])).join(" + ");
  const away = hidden[other];
  // The largest weights of one head, or of the mean of many.
  const ofMean = () => {
    const weights = meanAcross(layer, heads, focus);
    // In a very long text no weight is worth naming, and yet the row is not empty.
    const most = { count: NAMED, hidden: away };
    const worth = strongest(weights, { threshold: WORTH_NAMING, ...most });
    const positions = worth.length ? worth : strongest(weights, { threshold: Number.MIN_VALUE, ...most });
    return positions
      .map((i) => ({ word: isolated(others[i]), weight: worth.length ? weights[i].toFixed(2) : exact(weights[i]) }))
      .map((each) => fill(texts.item, each));
  };
  // The largest weight of each of a few heads.
  const ofEach = () =>
    heads.flatMap((head) => {
      const weights = across(layer, head, focus);
      const [at] = strongest(weights, { threshold: Number.MIN_VALUE, count: 1, hidden: away });
      if (at === undefined) return [];
      return fill(texts.each, { word: isolated(others[at]), weight: short(weights[at]), head: head + 1 });
    });
  const isFew = heads.length > 1 && heads.length <= MAX_NUMBERS;
  const list = (isFew ? ofEach() : ofMean()).join(texts.comma);
  const who = fill(heads.length === 1 ? texts.one_head : texts.mean_of, {
    heads: heads.map((h) => h + 1).join(texts.comma),
  });
  const kind = !list ? "nowhere" : isFew ? "each" : "looks";
  const sentence = fill(texts[`${focus.side}_${kind}`], { who, tokens, list });
  const added = focus.tokens.length > 1 && texts.added;
  if (focus.side === "key") return paragraph([sentence, layer.away && texts.rescaled, added], texts);
  const share = shareOfHidden(layer, heads, focus);
  const hiddenShare = share >= WORTH_NAMING && fill(texts.hidden_share, { share: share.toFixed(2) });
  return paragraph([sentence, hiddenShare, added], texts);
}

// How much of what these queries take comes from keys that are hidden, the mean over heads.
/** @param {AnyLayer} layer @param {number[]} heads @param {Focus} focus */
function shareOfHidden(layer, heads, focus) {
  const { away } = layer;
  if (!away) return 0;
  const sum = heads.reduce((s, head) => focus.tokens.reduce((t, token) => t + away(head, token), s), 0);
  return sum / heads.length;
}

// The weights that are drawn, as rows of a table: for the focus alone, or for every pair of tokens. Keys that
// are hidden have no row.
/**
 * @param {Panel} panel
 * @param {AnyLayer} layer
 * @param {number[]} heads
 * @param {Focus | null} focus
 * @returns {(string | number)[][]}
 */
export function table(panel, layer, heads, focus) {
  const [from, to] = [listOf(panel, "query"), listOf(panel, "key")];
  /** @param {string[]} list */
  const every = (list) => list.map((_, i) => i);
  const queries = focus?.side === "query" ? focus.tokens : every(from);
  const keys = (focus?.side === "key" ? focus.tokens : every(to)).filter((key) => !layer.hidden?.has(key));
  return heads.flatMap((head) =>
    queries.flatMap((query) =>
      keys.map((key) => [
        layer.number + 1,
        head + 1,
        query + 1,
        from[query],
        key + 1,
        to[key],
        layer.weight(head, query, key),
      ]),
    ),
  );
}
