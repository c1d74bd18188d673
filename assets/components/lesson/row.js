// A row of weights that is drawn by hand, in whole per cents: its sum stays 100.

/** @typedef {number[]} Row whole per cents, one for each word */

// The same for all; what is left over goes to the first ones.
/** @param {number} count @returns {Row} */
export function evenly(count) {
  const each = Math.floor(100 / count);
  return Array.from({ length: count }, (_, at) => each + (at < 100 - each * count ? 1 : 0));
}

// One weight becomes another; the others give way in proportion, all alike where they had none. Those that were `held`
// before stay as they are as long as the others have enough to give.
/**
 * @param {Row} row
 * @param {number} at
 * @param {number} share per cents, cut to 0 to 100
 * @param {Set<number>} held
 * @returns {Row}
 */
export function withWeight(row, at, share, held = new Set()) {
  const own = row.length === 1 ? 100 : Math.round(Math.min(Math.max(share, 0), 100));
  const others = row.map((_, key) => key).filter((key) => key !== at);
  const [firm, free] = [true, false].map((isHeld) => others.filter((key) => held.has(key) === isHeld));
  /** @param {number[]} keys */
  const sumOf = (keys) => keys.reduce((sum, key) => sum + row[key], 0);
  const ofFirm = free.length ? Math.min(sumOf(firm), 100 - own) : 100 - own;
  const exact = row.map(() => own);
  for (const [keys, all] of /** @type {const} */ ([
    [firm, ofFirm],
    [free, 100 - own - ofFirm],
  ])) {
    const before = sumOf(keys);
    for (const key of keys) exact[key] = before ? (row[key] * all) / before : all / keys.length;
  }
  const whole = exact.map(Math.floor);
  const missing = 100 - whole.reduce((sum, one) => sum + one, 0);
  const byRemainder = exact.map((_, key) => key).sort((a, b) => exact[b] - whole[b] - (exact[a] - whole[a]) || a - b);
  for (const key of byRemainder.slice(0, missing)) whole[key] += 1;
  return whole;
}

// As an answer has it: ``3:60,7:40``, words from 1.
/** @param {Row} row */
export const writtenRow = (row) =>
  row
    .map((share, at) => (share ? `${at + 1}:${share}` : ""))
    .filter(Boolean)
    .join();

// The row of an answer; null for what is none of so many words.
/** @param {string | null} answer @param {number} count @returns {Row | null} */
export function readRow(answer, count) {
  const row = Array(count).fill(0);
  for (const part of String(answer ?? "").split(",")) {
    const [, at, share] = /^(\d+):(\d+)$/.exec(part) ?? [];
    if (!at || Number(at) < 1 || Number(at) > count) return null;
    row[Number(at) - 1] = Number(share);
  }
  return row.reduce((sum, one) => sum + one, 0) === 100 ? row : null;
}
