// Curves between tokens: eight numbers each (a cubic Bézier), drawn on a canvas, hit by a pointer, saved as SVG.
import { lookOf } from "./colours.js";

const SAMPLES = 24; // straight pieces of a curve, to which a distance is measured

/** @typedef {{ head: number, query: number, key: number, weight: number }} Line */
/** @typedef {Line & { strength: number, points: number[] }} Curve eight numbers, and how strong it is drawn */

// From the right end of a query to the left end of a key.
/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
export const between = (x0, y0, x1, y1) => [x0, y0, x0 + 0.45 * (x1 - x0), y0, x0 + 0.55 * (x1 - x0), y1, x1, y1];

// Above a line of text, higher the farther apart; the curve of a token to itself is a small loop.
/** @param {number} from @param {number} to @param {number} base @param {number} maxHeight */
export function arc(from, to, base, maxHeight) {
  if (from === to) return [from - 4, base, from - 14, base - 26, from + 14, base - 26, from + 4, base];
  const height = Math.min(maxHeight, 14 + 0.45 * Math.abs(to - from)) / 0.75; // a cubic reaches 3/4 of its handles
  return [from, base, from, base - height, to, base - height, to, base];
}

/**
 * @param {number[]} curve eight numbers
 * @param {number} t
 * @returns {[number, number]}
 */
export function point([x0, y0, x1, y1, x2, y2, x3, y3], t) {
  const s = 1 - t;
  const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
  return [a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3];
}

// How far a place is from a curve, in pixels; Infinity where it is clearly elsewhere.
/** @param {number[]} curve @param {number} x @param {number} y @param {number} reach */
export function distance(curve, x, y, reach = 8) {
  const [xs, ys] = [0, 1].map((odd) => curve.filter((_, i) => i % 2 === odd));
  if (x < Math.min(...xs) - reach || x > Math.max(...xs) + reach) return Infinity;
  if (y < Math.min(...ys) - reach || y > Math.max(...ys) + reach) return Infinity;
  let nearest = Infinity;
  let [px, py] = point(curve, 0);
  for (let i = 1; i <= SAMPLES; i++) {
    const [qx, qy] = point(curve, i / SAMPLES);
    const [dx, dy] = [qx - px, qy - py];
    const t = Math.min(1, Math.max(0, ((x - px) * dx + (y - py) * dy) / (dx * dx + dy * dy || 1)));
    nearest = Math.min(nearest, Math.hypot(x - px - t * dx, y - py - t * dy));
    [px, py] = [qx, qy];
  }
  return nearest;
}

// The curve under the pointer, the strongest of those that are as near.
/** @param {Curve[]} curves @param {number} x @param {number} y @param {number} reach */
export function under(curves, x, y, reach = 6) {
  /** @type {{ curve: Curve, d: number } | null} */
  let nearest = null;
  for (const curve of curves) {
    const d = distance(curve.points, x, y, reach);
    if (d > reach) continue;
    if (!nearest || d < nearest.d - 1 || (d < nearest.d + 1 && curve.weight > nearest.curve.weight))
      nearest = { curve, d };
  }
  return nearest?.curve ?? null;
}

/** @param {number} weight @param {boolean} thin */
export const strokeOf = (weight, thin = false) => ({
  width: (thin ? 0.5 : 1) * (0.7 + 3.6 * Math.min(weight, 1)),
  opacity: 0.1 + 0.9 * Math.min(weight, 1),
});

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Curve[]} curves
 * @param {string[]} palette
 * @param {Curve | null} marked
 */
export function drawCurves(context, curves, palette, marked) {
  /** @type {Map<string, { head: number, level: number, curves: Curve[] }>} */
  const groups = new Map(); // one path for all curves that look alike: thousands of strokes are slow
  for (const curve of curves) {
    const level = Math.round(Math.min(curve.strength, 1) * 24);
    const name = `${curve.head} ${level}`;
    const group = groups.get(name) ?? { head: curve.head, level, curves: [] };
    groups.set(name, group);
    group.curves.push(curve);
  }
  const ordered = [...groups.values()].sort((a, b) => a.level - b.level); // the strongest on top
  for (const group of ordered) stroke(context, group.curves, palette, group.head, group.level / 24);
  if (marked) stroke(context, [marked], palette, marked.head, 1, strokeOf(marked.strength).width + 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Curve[]} curves
 * @param {string[]} palette
 * @param {number} head
 * @param {number} weight
 * @param {number} [width]
 */
function stroke(context, curves, palette, head, weight, width) {
  const { colour, dash, thin } = lookOf(palette, head);
  const look = strokeOf(weight, thin);
  context.strokeStyle = colour;
  context.globalAlpha = look.opacity;
  context.lineWidth = width ?? look.width;
  context.setLineDash(dash);
  context.beginPath();
  for (const { points } of curves) {
    context.moveTo(points[0], points[1]);
    const [, , x1, y1, x2, y2, x3, y3] = points;
    context.bezierCurveTo(x1, y1, x2, y2, x3, y3);
  }
  context.stroke();
  context.globalAlpha = 1;
  context.setLineDash([]);
}
