// The colours of weights and of heads, as the page's theme has them.

/** @typedef {[number, number, number]} Colour red, green and blue, 0 to 255 */
/** @typedef {{ colour: string, dash: number[], thin: boolean }} LineLook how the lines of a head are drawn */

const DASHES = [[], [7, 4], [2, 3]]; // of ten heads each: more colours than ten are hard to tell apart
const HEADS = 10; // how many are drawn with the same dashes
const TEXT_CONTRAST = 4.5; // of small text (WCAG 2.2, 1.4.3)
export const HIDDEN_COLOUR = [128, 128, 128, 72];
const SHADES = 4097; // of a scale in a table, one of them in its middle: two differ by less than a colour does
/** @type {WeakMap<Colour[], Uint32Array>} */
const tables = new WeakMap();
/** @type {Map<string, Colour[]>} by how a theme writes them */
const scalesOfThemes = new Map();

/**
 * The colours of a scale, read anew because the theme can change: of weights or, "diverging", of signed numbers, whose 0
 * has the colour of the weight 0. The same theme has the same array.
 * @param {Element} element
 * @returns {Colour[]}
 */
export function themeColours(element, scale = "sequential") {
  const listed = getComputedStyle(element).getPropertyValue(`--st-chart-${scale}-colors`);
  const zero = scale === "diverging" ? [themeColours(element)[0]] : [];
  const name = `${listed} ${zero}`;
  const known = scalesOfThemes.get(name);
  if (known) return known;
  const colours = listed.split(",").map(colourOf);
  // Streamlit's theme has ten: none of them is the middle, and a mixture of two would be a tint.
  colours.splice(colours.length / 2, 0, ...zero);
  scalesOfThemes.set(name, colours);
  return colours;
}

// The colour written as "#rrggbb".
/** @param {string} hex */
export const colourOf = (hex) => /** @type {Colour} */ ([1, 3, 5].map((i) => parseInt(hex.trim().slice(i, i + 2), 16)));

/**
 * The colour at a share (0 to 1) of the scale.
 * @param {Colour[]} colours
 * @param {number} share
 * @returns {Colour}
 */
export function shade(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  return /** @type {Colour} */ (colours[low].map((c, i) => Math.round(c + (colours[low + 1][i] - c) * (at - low))));
}

// Relative luminance of a colour, 0 to 1 (WCAG 2).
/** @param {number[]} colour */
function luminance(colour) {
  const linear = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

/**
 * Dark or light ink, whichever stands out more on a colour.
 * @param {number[]} colour
 */
export const inkOn = (colour) => (luminance(colour) > 0.179 ? "#000000" : "#ffffff");

/**
 * A colour as small text: mixed with the ink of the page as far as it must be to stand out from its ground.
 * @param {string} colour
 * @param {string} ink
 * @param {Colour} ground
 */
export function textColour(colour, ink, ground) {
  const behind = luminance(ground) + 0.05;
  for (let share = 0; share < 1; share += 0.05) {
    const mixed = shade([colourOf(colour), colourOf(ink)], share);
    const before = luminance(mixed) + 0.05;
    if (Math.max(before, behind) / Math.min(before, behind) >= TEXT_CONTRAST) return `rgb(${mixed})`;
  }
  return ink;
}

/**
 * Pixels of shares (0 to 1) of the scale, four bytes in one number each; NaN is hidden.
 * @param {Colour[]} colours
 * @returns {(share: number) => number}
 */
export function pixelOf(colours) {
  const table = tables.get(colours) ?? tableOfShades(colours);
  tables.set(colours, table);
  return (share) => table[Number.isNaN(share) ? SHADES : Math.round(Math.min(Math.max(share, 0), 1) * (SHADES - 1))];
}

/** @param {Colour[]} colours */
function tableOfShades(colours) {
  const bytes = new Uint8ClampedArray(4 * (SHADES + 1));
  for (let at = 0; at < SHADES; at++) bytes.set([...shade(colours, at / (SHADES - 1)), 255], 4 * at);
  bytes.set(HIDDEN_COLOUR, 4 * SHADES);
  return new Uint32Array(bytes.buffer);
}

/**
 * A head's colour, and its dashes where there are more than ten heads. Of one colour for all heads, which random
 * weights have, every head is dashed and thin.
 * @param {string[]} palette
 * @param {number} head
 * @returns {LineLook}
 */
export function lookOf(palette, head) {
  if (palette.length === 1) return { colour: palette[0], dash: DASHES[1], thin: true };
  return {
    colour: palette[head % palette.length],
    dash: DASHES[Math.floor(head / HEADS) % DASHES.length],
    thin: false,
  };
}

// The largest size of a number, at which a scale around 0 ends.
/** @param {ArrayLike<number>} values */
export function largestOf(values) {
  let most = 0;
  for (let at = 0; at < values.length; at++) most = Math.max(most, Math.abs(values[at]) || 0);
  return most;
}
