// Offer a drawing of our own to the Save menus of a page (charts.js); `figure` as charts_save.js asks for it.
export function saveable(root, figure) {
  const { host } = root.getRootNode();
  if (!host) return;
  host.headscope = figure;
  host.dataset.headscopeSaveable = "";
  window.headscopeCharts?.look();
}

// An element of a drawing; its text is text.
export function drawn(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}
