// Clicks on plotly's figures, and a Save menu at each and at what `saveable` has offered. Streamlit reports no
// click on a heatmap, but our components run in its page, where plotly can be asked. Mounted once for all pages;
// what the page keeps for it is one object on window, so that nothing piles up however often the app runs again.
// Data: the words of the menu, { open, png, svg, csv }.
// A figure says what it is in layout.meta: { title, caption, file, start, rows, columns, corner }.
const PLOT = ".js-plotly-plot";

// Reports a clicked cell of a figure that has `start`, the positions of its first row and column.
function report(charts, plot, { points }) {
  const start = plot.layout?.meta?.start;
  const cell = points.find((point) => Array.isArray(point.pointNumber));
  if (!start || !cell) return;
  const [row, column] = start.map((first, axis) => (first === null ? null : first + cell.pointNumber[axis]));
  charts.send({ chart: keyOf(plot), row, column });
}

function keyOf(plot) {
  const names = plot.closest("[class*='st-key-']")?.classList ?? [];
  return [...names].find((name) => name.startsWith("st-key-"))?.slice("st-key-".length) ?? "";
}

// Before each press the one listener of the figure is put (back) in place: plotly forgets it when a
// figure is drawn anew, and keeps it when it is only updated.
function listen(charts, target) {
  const plot = target.closest?.(PLOT);
  if (!plot?.on) return;
  plot.headscopeClick ??= (event) => report(charts, plot, event);
  plot.removeListener("plotly_click", plot.headscopeClick);
  plot.on("plotly_click", plot.headscopeClick);
}

// Every figure has its menu, also those that come later.
function watch(charts) {
  let waiting = false;
  const scan = () => {
    waiting = false;
    for (const plot of window.Plotly?.toImage ? document.querySelectorAll(PLOT) : []) {
      plot.toggleAttribute("data-headscope-cells", (plot._fullData ?? []).some(({ type }) => type === "heatmap"));
      addMenu(plot.parentElement, () => plotted(plot), charts.words);
    }
    for (const host of document.querySelectorAll("[data-headscope-saveable]")) {
      host.parentElement.dataset.headscopeBox = "";
      addMenu(host.parentElement, () => host.headscope, charts.words);
    }
  };
  const later = () => {
    if (!waiting) setTimeout(scan, 50);
    waiting = true;
  };
  charts.look = later;
  document.addEventListener("pointerdown", ({ target }) => listen(charts, target), true);
  new MutationObserver(later).observe(document.body, { subtree: true, childList: true });
  later();
}

export default function ({ data, setTriggerValue }) {
  const first = !window.headscopeCharts;
  const charts = (window.headscopeCharts ??= {});
  charts.words = data;
  charts.send = (picked) => setTriggerValue("picked", picked);
  if (first) watch(charts);
}
