// A link may name a section of a page by the anchor of its heading (#mixture). Streamlit scrolls there once, when the
// heading appears; what is drawn above it later would push it out of sight. This script keeps the heading at the top
// until you scroll, click or press a key.
import { PAGE } from "./adapter.js";

const ACTS = ["wheel", "pointerdown", "touchstart", "keydown"];

/** @param {string} name of the anchor; "" holds nothing */
export function holdSection(name) {
  if (!name) return;
  const sizes = new ResizeObserver(hold);
  const parts = new MutationObserver(watch);

  function hold() {
    const heading = document.getElementById(name);
    if (heading && Math.abs(heading.getBoundingClientRect().top - top(heading)) > 1) heading.scrollIntoView();
  }

  // The page is made anew part by part while it is drawn.
  function watch() {
    for (const part of document.querySelectorAll(PAGE)) sizes.observe(part);
    hold();
  }

  function leave() {
    sizes.disconnect();
    parts.disconnect();
    for (const act of ACTS) window.removeEventListener(act, leave, true);
  }

  for (const act of ACTS) window.addEventListener(act, leave, { capture: true, passive: true });
  parts.observe(document.body, { subtree: true, childList: true });
  parts.observe(document.documentElement, { attributeFilter: ["style"] }); // what stands above it (adapter.js)
  watch();
}

// Where a heading comes to stand: below the bar of the page.
/** @param {HTMLElement} heading */
const top = (heading) => parseFloat(getComputedStyle(heading).scrollMarginTop) || 0;
