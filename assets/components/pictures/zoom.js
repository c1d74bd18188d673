// Zooms and moves a heatmap: buttons, the wheel, a double click, one or two fingers, three keys, and of a long text a small
// picture of all of it.
import { fit, make, makeButton, named, penOf, write } from "../page/elements.js";

/** @typedef {import("./heatmap.js").Heatmap} Heatmap */

const STILL = 4; // pixels that a click may tremble
const WHOLE_SIDE = 76; // pixels of the longer side of the small picture
const READABLE = 16; // pixels of a cell beside which its name stands

/**
 * Follow the fingers on a heatmap. A click that ends a drag reaches nobody who listens later.
 * @param {Heatmap} map
 * @param {() => boolean} painting whether they paint cells instead
 */
export function followFingers(map, painting = () => false) {
  const { canvas } = map;
  /** @type {Map<number, [number, number]>} by finger where it is */
  const fingers = new Map();
  let dragged = 0; // pixels with a finger or a button down
  /** @param {MouseEvent} event */
  const inside = (event) => map.inside(event);
  canvas.style.touchAction = "pan-y";
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) {
      // The page scrolls, unless something of what is zoomed comes into sight.
      const [x, y] = [map.viewport.x, map.viewport.y];
      map.pan(-event.deltaX, -event.deltaY);
      if (map.viewport.x !== x || map.viewport.y !== y) event.preventDefault();
      return;
    }
    event.preventDefault();
    map.zoom(Math.exp(-event.deltaY / 200), ...inside(event));
  });
  canvas.addEventListener("dblclick", (event) => map.zoom(event.shiftKey ? 0.5 : 2, ...inside(event)));
  canvas.addEventListener("pointerdown", (event) => {
    if (painting()) return;
    if (!fingers.size) dragged = 0;
    fingers.set(event.pointerId, inside(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before || !event.buttons) return;
    const now = inside(event);
    fingers.set(event.pointerId, now);
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    const other = [...fingers].find(([finger]) => finger !== event.pointerId)?.[1];
    if (!other && !map.viewport.zoomed) return;
    dragged += Math.abs(dx) + Math.abs(dy);
    event.stopImmediatePropagation();
    if (other) map.zoom(apartBy(now, other) / (apartBy(before, other) || 1), ...middleOf(now, other));
    else if (dragged >= STILL) map.pan(dx, dy);
  });
  for (const end of ["pointerup", "pointercancel", "pointerleave"])
    canvas.addEventListener(end, (event) => fingers.delete(/** @type {PointerEvent} */ (event).pointerId));
  canvas.addEventListener("click", (event) => {
    if (dragged >= STILL) event.stopImmediatePropagation();
  });
}

/** @param {[number, number]} a @param {[number, number]} b */
const apartBy = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
/** @param {[number, number]} a @param {[number, number]} b @returns {[number, number]} */
const middleOf = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];

// The cell in the middle, large enough to be read.
/** @param {Heatmap} map @param {import("./heatmap.js").Cell} cell */
export function goTo(map, cell) {
  map.zoom(Math.max(1, READABLE / map.viewport.cell));
  map.viewport.centre(cell);
  map.paint();
}

// All of a long text in small, with a frame around what is in sight; a press or a drag moves the frame. Those who do not
// see it have the keys.
/** @param {Heatmap} map */
function smallPicture(map) {
  const canvas = Object.assign(make("canvas", "whole"), { ariaHidden: "true" });
  /** @param {PointerEvent} event */
  const follow = ({ offsetX, offsetY, buttons }) => {
    if (!buttons) return;
    const { rows, columns } = map.viewport;
    map.viewport.centre({
      row: (offsetY / canvas.clientHeight) * rows,
      column: (offsetX / canvas.clientWidth) * columns,
    });
    map.paint();
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (!map.viewport.zoomed) map.zoom(4);
    follow(event);
  });
  canvas.addEventListener("pointermove", follow);
  const paint = () => {
    canvas.hidden = (map.numbers.step ?? 1) === 1;
    if (canvas.hidden) return;
    const { rows, columns } = map.viewport;
    const [wide, high] = [columns, rows].map((side) => Math.ceil((WHOLE_SIDE * side) / Math.max(rows, columns)));
    fit(canvas, wide, high);
    const pen = penOf(canvas);
    pen.clearRect(0, 0, wide, high); // hidden cells are not opaque
    pen.drawImage(map.picture, 0, 0, wide, high);
    const [[left, right], [top, bottom]] = [map.viewport.seen("x"), map.viewport.seen("y")];
    const [across, down] = [wide / columns, high / rows];
    const [x, y] = [Math.min(left * across, wide - 4), Math.min(top * down, high - 4)]; // however little is in sight
    pen.strokeStyle = map.look.accent;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max((right - left) * across, 4) - 2, Math.max((bottom - top) * down, 4) - 2);
  };
  return { canvas, paint };
}

/** @type {Record<string, number>} */
const KEYS = { "+": 2, "-": 0.5, 0: 0 };

/**
 * Zoom by a key; whether it is one that zooms.
 * @param {Heatmap} map
 * @param {string} key
 */
export function zoomByKey(map, key) {
  if (!(key in KEYS)) return false;
  map.zoom(KEYS[key]);
  return true;
}

/**
 * Buttons that zoom, and what the colours mean.
 * @param {Heatmap} map
 * @param {Record<string, string>} texts
 * @returns {HTMLElement[]}
 */
export function zoomTools(map, texts) {
  const scale = make("span", "scale");
  const small = smallPicture(map);
  map.moved = () => {
    small.paint();
    write(scale, map.caption(texts));
  };
  /** @type {(text: string, label: string, by: number) => HTMLElement} */
  const button = (text, label, by) => {
    const element = makeButton(text, "", () => map.zoom(by));
    return named(element, label);
  };
  const buttons = [button("+", texts.zoom_in, 2), button("−", texts.zoom_out, 0.5), button("⤢", texts.zoom_whole, 0)];
  return [small.canvas, ...buttons, scale];
}
