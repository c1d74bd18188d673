// What a figure of plotly's is asked for by its Save menu (charts_save.js).
function plotted(plot) {
  const { paper_bgcolor: paper, font = {} } = plot._fullLayout ?? {};
  return {
    meta: plot.layout?.meta ?? {},
    look: () => ({
      paper,
      font: font.family,
      get ink() {
        return getComputedStyle(plot.parentElement).color; // asked for only when a file is made
      },
    }),
    drawn: async () => {
      const { width, height } = plot._fullLayout;
      const url = await window.Plotly.toImage(plot, { format: "svg", width, height });
      const source = decodeURIComponent(url.slice(url.indexOf(",") + 1)).replace(NOT_XML, "\ufffd");
      return { figure: new DOMParser().parseFromString(source, "image/svg+xml").documentElement, width, height };
    },
    // A heatmap as the matrix that is drawn, empty where a cell is hidden; of others a line for each point.
    lines: () => (plot._fullData[0].type === "heatmap" ? matrix(plot) : points(plot)),
  };
}

function matrix(plot) {
  const [cells] = plot._fullData;
  const { rows = cells.y, columns = cells.x, corner = "" } = plot.layout.meta ?? {};
  const body = Array.from(cells.z, (row, i) => [rows[i], ...row]);
  return [[corner, ...columns], ...body];
}

function points(plot) {
  const shown = plot._fullData.filter((trace) => trace.hoverinfo !== "skip" && trace.visible === true);
  const axes = shown.some((trace) => trace.z) ? ["x", "y", "z"] : ["x", "y"];
  const of = (trace) =>
    Array.from(trace.x, (_, i) => [
      plain(trace.name),
      ...axes.map((axis) => trace[axis][i]),
      Array.isArray(trace.customdata) ? trace.customdata[i] : "",
    ]);
  return [["series", ...axes, "label"], ...shown.flatMap(of)];
}

// The text of plotly's pseudo-HTML, in which we escape everything.
function plain(text) {
  return new DOMParser().parseFromString(text, "text/html").documentElement.textContent;
}
