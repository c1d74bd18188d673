// What our components share. This file is put in front of each component's own script.

// The colours of the sequential scale, as [r, g, b], read anew because the theme can change.
export function themeColours(element) {
  const listed = getComputedStyle(element).getPropertyValue("--st-chart-sequential-colors");
  return listed.split(",").map((hex) => [1, 3, 5].map((i) => parseInt(hex.trim().slice(i, i + 2), 16)));
}

// The colour at a share (0 to 1) of the scale.
export function shade(colours, share) {
  const at = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2);
  return colours[low].map((c, i) => Math.round(c + (colours[low + 1][i] - c) * (at - low)));
}

// Dark or light ink, whichever stands out more on a colour (relative luminance, WCAG 2).
export function ink(colour) {
  const linear = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#14161b" : "#ffffff";
}

// What is drawn needs no room kept for it any longer (pages/_kit/room.py).
export function arrived(element) {
  element.getRootNode().host?.closest(".stElementContainer")?.style.setProperty("--room", "0px");
}

// Put new elements in place of the old ones; whoever was at the third stays at the third.
export function redraw(container, elements) {
  const focused = [...container.children].indexOf(container.getRootNode().activeElement);
  container.replaceChildren(...elements);
  arrived(container);
  container.children[focused]?.focus({ preventScroll: true });
}
