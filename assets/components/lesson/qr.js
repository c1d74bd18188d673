// A QR code as a picture.
import { make, makeSvg } from "../page/elements.js";

/** @typedef {{ size: number, path: string }} QrCode its width in modules, and its dark ones as the path of an SVG */

// Dark on light in both themes, with a light frame: phones read no other.
/** @param {QrCode} qr @param {string} title */
export function qrPicture({ size, path }, title) {
  const look = { viewBox: `-4 -4 ${size + 8} ${size + 8}`, role: "img", "aria-label": title };
  const ground = makeSvg("rect", { x: -4, y: -4, width: size + 8, height: size + 8, fill: "#fff" });
  const modules = makeSvg("path", { d: path, fill: "#000", "shape-rendering": "crispEdges" });
  return make("div", "qr", makeSvg("svg", look, ground, modules));
}
