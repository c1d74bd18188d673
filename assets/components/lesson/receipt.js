// The receipt of a student as a picture to save: the lesson, how much of it is done, the day, and the code that the
// teacher can check.
import { make, penOf } from "../page/elements.js";

/**
 * @typedef {object} Receipt
 * @property {string} heading
 * @property {string} what it is good for, and how long
 * @property {string[]} titles of the lessons
 * @property {string[]} lines
 * @property {string} code
 * @property {string} save
 */

const SHEET = { width: 1000, height: 520, edge: 60, title: 64 }; // pixels of the picture; each further title
const COLOURS = { ink: "#20242e", quiet: "#5d6470", paper: "#ffffff" }; // the same in light and dark: it leaves the page
const FONT = "system-ui, sans-serif";
const CODE_FONT = "ui-monospace, monospace";

/** @param {Receipt} receipt */
export function receiptOf(receipt) {
  const address = picture(receipt);
  const image = Object.assign(make("img"), { src: address, alt: [...receipt.titles, ...receipt.lines].join(". ") });
  const save = make("a", "hint", receipt.save);
  Object.assign(save, { href: address, download: `${receipt.code}.png` });
  return make(
    "section",
    "receipt",
    make("h2", "", receipt.heading),
    image,
    make("code", "", receipt.code),
    make("p", "note", receipt.what),
    make("div", "foot", save),
  );
}

/** @param {Receipt} receipt */
function picture({ titles, lines, code }) {
  const height = SHEET.height + (titles.length - 1) * SHEET.title;
  const canvas = Object.assign(make("canvas"), { width: SHEET.width, height });
  const pen = penOf(canvas);
  pen.fillStyle = COLOURS.paper;
  pen.fillRect(0, 0, SHEET.width, height);
  pen.strokeStyle = COLOURS.quiet;
  pen.strokeRect(20, 20, SHEET.width - 40, height - 40);
  let y = SHEET.edge + 30;
  /** @param {string} text @param {string} font @param {string} colour @param {number} step */
  const write = (text, font, colour, step) => {
    pen.font = font;
    pen.fillStyle = colour;
    pen.fillText(text, SHEET.edge, y, SHEET.width - 2 * SHEET.edge); // a long line is made narrower
    y += step;
  };
  write("Headscope", `600 26px ${FONT}`, COLOURS.quiet, 70);
  for (const title of titles) write(title, `600 46px ${FONT}`, COLOURS.ink, SHEET.title);
  y += 11;
  for (const line of lines) write(line, `30px ${FONT}`, COLOURS.ink, 48);
  y = height - SHEET.edge;
  write(code, `600 34px ${CODE_FONT}`, COLOURS.ink, 0);
  return canvas.toDataURL("image/png");
}
