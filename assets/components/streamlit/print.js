// Pictures keep the size in which they were drawn: no script runs while a page is laid out for paper. So paper shows
// the page as wide as it is in the window, made smaller, and a light page on white (app.css).
import { PAGE } from "./adapter.js";

const PAPER = 688; // CSS pixels between the margins of A4, the narrower of the usual sizes

export function fitPaper() {
  window.addEventListener("beforeprint", () => {
    const page = document.querySelector(PAGE);
    if (!(page instanceof HTMLElement)) return;
    const { paddingLeft, paddingRight } = getComputedStyle(page);
    const width = page.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    const { style, classList } = document.documentElement;
    style.setProperty("--paper", String(Math.min(1, PAPER / width)));
    classList.toggle("light", getComputedStyle(page).colorScheme !== "dark");
  });
}
