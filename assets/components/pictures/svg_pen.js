// A pen with those acts of a canvas's pen that heatmaps use, which writes SVG: what is pixels on a page is vectors in a
// file.

import { make, makeSvg, penOf } from "../page/elements.js";

const BASE = 0.35; // of the size of letters: how far below its middle a text has its base line

/** @typedef {{ box: SVGElement, place: string, dash: number[] }} PenState where it draws, and how that was moved */

export class SvgPen {
  root = makeSvg("g", {});
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  globalAlpha = 1;
  font = "";
  /** @type {CanvasTextAlign} */
  textAlign = "left";
  /** @type {CanvasTextBaseline} every text stands in the middle */
  textBaseline = "middle";
  #ruler = penOf(make("canvas"));
  /** @type {PenState} */
  #now = { box: this.root, place: "", dash: [] };
  /** @type {PenState[]} */
  #saved = [];
  #box = { x: 0, y: 0, width: 0, height: 0 };
  #path = "";

  save() {
    this.#saved.push({ ...this.#now });
  }

  restore() {
    this.#now = this.#saved.pop() ?? this.#now;
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.#now.place += `translate(${hundredths(x)} ${hundredths(y)})`;
  }

  /** @param {number} angle in radians */
  rotate(angle) {
    this.#now.place += `rotate(${hundredths((angle * 180) / Math.PI)})`;
  }

  beginPath() {
    this.#path = "";
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.#box = { x, y, width, height };
  }

  // Until the pen is restored, only what is drawn inside the last rectangle is seen.
  clip() {
    const box = makeSvg("svg", this.#box);
    this.put("g", {}).append(box);
    Object.assign(this.#now, { box, place: "" });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.put("rect", { ...rectangle(x, y, width, height), fill: this.fillStyle });
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.put("rect", { ...rectangle(x, y, width, height), fill: "none", ...this.#stroke });
  }

  /** @param {number[]} dash */
  setLineDash(dash) {
    this.#now.dash = dash;
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#path += `M${hundredths(x)} ${hundredths(y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.#path += `L${hundredths(x)} ${hundredths(y)}`;
  }

  stroke() {
    this.put("path", { d: this.#path, fill: "none", ...this.#stroke });
  }

  get #stroke() {
    const { dash } = this.#now;
    return {
      stroke: this.strokeStyle,
      "stroke-width": this.lineWidth,
      ...(dash.length ? { "stroke-dasharray": dash.join(" ") } : {}),
    };
  }

  /** @param {string} text */
  measureText(text) {
    this.#ruler.font = this.font;
    return this.#ruler.measureText(text);
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const [, weight, size] = this.font.match(/(\d+ )?([\d.]+)px/) ?? ["", "", "12"];
    /** @type {Partial<Record<CanvasTextAlign, string>>} */
    const anchors = { center: "middle", right: "end" };
    const letters = {
      "font-size": hundredths(Number(size)),
      ...(Number(weight) > 400 ? { "font-weight": weight.trim() } : {}),
      "text-anchor": anchors[this.textAlign] ?? "start",
    };
    this.put(
      "text",
      { x: hundredths(x), y: hundredths(y + BASE * Number(size)), fill: this.fillStyle, ...letters },
      text,
    );
  }

  /** @param {string} name @param {Record<string, string | number>} attributes */
  put(name, attributes, text = "") {
    const { box, place } = this.#now;
    const seen = { ...(place && { transform: place }), ...(this.globalAlpha < 1 && { opacity: this.globalAlpha }) };
    const element = makeSvg(name, { ...attributes, ...seen }, text);
    box.append(element);
    return element;
  }
}

/** @param {number} value in so few digits that nobody sees the others */
const hundredths = (value) => Number(value.toFixed(2));

/** @param {number[]} box */
function rectangle(...box) {
  const [x, y, width, height] = box.map(hundredths);
  return { x, y, width, height };
}
