// The layout of the overview: the order and place of its pictures, which one is under the pointer, and where the arrow
// keys lead.
import { fill } from "../page/wording.js";

/** @typedef {{ layer: number, head: number }} HeadPlace from 0 */
/** @typedef {{ text: string, x: number, y: number, anchor: "start" | "center" | "end" }} PlanLabel */

/**
 * Where pictures stand, and how large they are, in pixels.
 * @typedef {object} Places
 * @property {number} pitch from one picture to the next
 * @property {number} gap
 * @property {number} caption room for one
 * @property {number} columns
 * @property {number} left
 * @property {number} top
 * @property {number[]} slots the head at each place, −1 for none
 */
/** @typedef {Places & { size: number, down: number, rows: number, width: number, height: number }} Plan */

const MAX_PITCH = 96; // pixels from one picture to the next
const MIN_PITCH = 10; // below this only where the screen is too narrow
const MAX_TOTAL_HEIGHT = 720; // of all pictures together, where they can be smaller
const EDGE = { left: 26, top: 18 }; // room for the numbers of layers and heads
const BELOW = 15; // room for a caption
export const LETTERS = 11; // pixels: the height of numbers and captions
const ARM = 4; // pixels that a bracket reaches down at both ends

// The layer and head of each picture, in the order of the data.
/** @param {number[]} counts @returns {HeadPlace[]} */
export function headsOf(counts) {
  return counts.flatMap((count, layer) => Array.from({ length: count }, (_, head) => ({ layer, head })));
}

// The heads by one of their measures; without a number they come last, and equal ones stay as they are.
/** @param {number[]} values @param {boolean} descending */
export function ranking(values, descending) {
  const way = descending ? -1 : 1;
  return [...values.keys()].sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b;
    return way * (x - y) || a - b;
  });
}

// The heads by what they do: those that do the same together, the surest first; those without a role last.
/** @param {(string | null)[]} roles @param {number[]} scores @param {boolean} backwards */
export function byRole(roles, scores, backwards) {
  const way = backwards ? -1 : 1;
  return [...roles.keys()].sort((a, b) => {
    const [one, other] = [roles[a], roles[b]];
    if (!one || !other) return Number(!one) - Number(!other) || a - b;
    if (one !== other) return way * (one < other ? -1 : 1);
    return scores[b] - scores[a] || a - b;
  });
}

// Where the pictures stand. In the grid a row is a layer and a column a head; a ranking (a list of heads)
// runs on from row to row, as wide as the grid and with pictures as large. `slots` has the head at each place, −1 for none.
/** @param {number[]} counts @param {number} width @param {number[] | null} ranked */
export function arrange(counts, width, ranked = null) {
  const columns = Math.max(...counts);
  const fits = Math.floor((width - EDGE.left) / columns);
  const tall = Math.max(MIN_PITCH, Math.floor(MAX_TOTAL_HEIGHT / counts.length));
  const pitch = Math.max(3, Math.min(MAX_PITCH, fits, tall));
  const gap = pitch >= 40 ? 6 : pitch >= 14 ? 2 : 1;
  if (ranked) {
    const caption = pitch >= 30 ? BELOW : 0;
    const across = Math.min(ranked.length, columns); // as wide as the grid, so that nothing beside it moves
    return place({ pitch, gap, caption, columns: across, left: 0, top: 0, slots: ranked });
  }
  let start = 0;
  const slots = counts.flatMap((count) => {
    const row = Array.from({ length: columns }, (_, head) => (head < count ? start + head : -1));
    start += count;
    return row;
  });
  return place({ pitch, gap, caption: 0, columns, left: EDGE.left, top: EDGE.top, slots });
}

/** @param {Places} plan @returns {Plan} */
function place(plan) {
  const size = plan.pitch - plan.gap;
  const down = plan.pitch + plan.caption;
  const rows = Math.ceil(plan.slots.length / plan.columns);
  const width = EDGE.left + plan.columns * plan.pitch - plan.gap + 2;
  return { ...plan, size, down, rows, width, height: plan.top + rows * down - plan.gap + 2 };
}

// The upper left corner of the picture at a place; 1 is room for an outline.
/** @param {Plan} plan @param {number} slot @returns {[x: number, y: number]} */
export function corner(plan, slot) {
  const column = slot % plan.columns;
  return [1 + plan.left + column * plan.pitch, 1 + plan.top + Math.floor(slot / plan.columns) * plan.down];
}

// The place under a point of the canvas, −1 where there is no head; gaps belong to the picture before them.
/** @param {Plan} plan @param {number} x @param {number} y */
export function placeAt(plan, x, y) {
  const column = Math.floor((x - plan.left - 1) / plan.pitch);
  const row = Math.floor((y - plan.top - 1) / plan.down);
  if (column < 0 || column >= plan.columns || row < 0 || row >= plan.rows) return -1;
  const slot = row * plan.columns + column;
  return (plan.slots[slot] ?? -1) < 0 ? -1 : slot;
}

// The place that a key leads to, the same one where there is nothing further.
/** @param {Plan} plan @param {number} slot @param {string} key */
export function stepTo(plan, slot, key) {
  /** @param {number} at */
  const taken = (at) => at >= 0 && (plan.slots[at] ?? -1) >= 0;
  if (key === "Home") return plan.slots.findIndex((head) => head >= 0);
  if (key === "End") return plan.slots.findLastIndex((head) => head >= 0);
  /** @type {Record<string, number>} */
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -plan.columns, ArrowDown: plan.columns };
  const by = steps[key];
  if (by === undefined) return slot;
  let next = slot + by;
  while (next >= 0 && next < plan.slots.length && !taken(next)) next += by;
  return taken(next) ? next : slot;
}

// Which numbers of an axis are written: each multiple of a round step, and the first where it has room.
/** @param {number} count @param {number} pitch @param {number} room */
export function numbered(count, pitch, room) {
  const apart = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100].find((by) => by * pitch >= room) ?? count;
  const first = apart === 1 || apart > count || (apart - 1) * pitch >= room;
  return Array.from({ length: count }, (_, i) => i).filter((i) => (i + 1) % apart === 0 || (i === 0 && first));
}

// The labels beside the grid: { text, x, y, anchor }, y in the middle of the letters.
/** @param {Plan} plan @returns {PlanLabel[]} */
export function axes(plan) {
  /** @type {PlanLabel[]} */
  const layers = numbered(plan.rows, plan.pitch, 13).map((layer) => {
    const y = corner(plan, layer * plan.columns)[1] + plan.size / 2;
    return { text: String(layer + 1), x: plan.left - 5, y, anchor: "end" };
  });
  /** @type {PlanLabel[]} */
  const heads = numbered(plan.columns, plan.pitch, 20).map((head) => {
    const x = corner(plan, head)[0] + plan.size / 2;
    return { text: String(head + 1), x, y: plan.top / 2 - 1, anchor: "center" };
  });
  return [...layers, ...heads];
}

// The captions below the pictures of a ranking, where there is room.
/** @param {Plan} plan @param {HeadPlace[]} all @returns {PlanLabel[]} */
export function captions(plan, all) {
  if (!plan.caption) return [];
  return plan.slots.map((at, slot) => {
    const [x, y] = corner(plan, slot);
    const text = `${all[at].layer + 1}.${all[at].head + 1}`;
    return { text, x: x + plan.size / 2, y: y + plan.size + plan.caption / 2, anchor: "center" };
  });
}

// Which heads share keys and values: a bracket over their columns, as the path of a drawing; empty for no brackets.
/** @param {Plan} plan @param {number} size */
export function brackets(plan, size) {
  const starts = size ? Array.from({ length: Math.ceil(plan.columns / size) }, (_, group) => group * size) : [];
  return starts
    .map((head) => {
      const last = Math.min(head + size, plan.columns) - 1;
      const [left] = corner(plan, head);
      const right = corner(plan, last)[0] + plan.size;
      return `M${left + 0.5} ${plan.top}v${0.5 - ARM}H${right - 0.5}v${ARM - 0.5}`;
    })
    .join("");
}

// The name of a head, with the key/value head that it shares with others.
/** @param {Record<string, string>} texts @param {number[]} shared @param {number} layer @param {number} head */
export function headName(texts, shared, layer, head) {
  const name = fill(texts.name, { layer: layer + 1, head: head + 1 });
  const size = shared[layer];
  return size > 1 ? `${name} · ${fill(texts.shared, { head: Math.floor(head / size) + 1 })}` : name;
}

// How many columns each bracket covers, if that is the same in all layers; 0 for no brackets.
/** @param {number[]} shared */
export function bracketed(shared) {
  return new Set(shared).size === 1 && shared[0] > 1 ? shared[0] : 0;
}
