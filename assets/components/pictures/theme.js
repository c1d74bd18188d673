// The theme of the page as pictures draw it, and that of print. It is read again each time: theme and fonts can change.

import { make } from "../page/elements.js";
import { colourOf, shade, textColour, themeColours } from "./colours.js";

/** @typedef {ReturnType<typeof themeOf>} Theme */

const GREY = "#808080";
const FOCUS_TINT = 0.16; // of the accent behind a token in focus (view/head_view.css)

/**
 * `palette` are the colours of heads, `textColours` the same as small text. Heads of random weights are all grey.
 * @param {Element} element
 */
export function themeOf(element, random = false) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const read = (name) => style.getPropertyValue(name).trim();
  const [ink, accent, paper] = ["text", "primary", "background"].map((name) => read(`--st-${name}-color`));
  const colours = read("--st-chart-categorical-colors").split(",");
  const palette = random ? [GREY] : colours.map((colour) => colour.trim());
  const ground = shade([colourOf(paper), colourOf(accent)], FOCUS_TINT);
  return {
    sequential: themeColours(element),
    diverging: themeColours(element, "diverging"),
    ink,
    accent,
    paper,
    font: style.fontFamily,
    palette,
    textColours: palette.map((colour) => textColour(colour, ink, ground)),
  };
}

/**
 * The theme of files that go into slides and papers: dark on white, whatever the page is (pictures/print.css).
 * @param {Element} root in the component's own tree
 * @returns {Theme}
 */
export function printTheme(root, random = false) {
  const sheet = make("span", "print");
  root.append(sheet);
  const theme = themeOf(sheet, random);
  sheet.remove();
  return theme;
}
