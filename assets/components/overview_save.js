// The overview as a file (charts_save.js): its pictures as they stand, numbers and captions as letters, and
// every measure as a table.
const FINER = 2; // pixels of a picture for each of the drawing, as in a PNG

function overviewDrawn(plan, atlas, { ink, side }) {
  const { width, height } = plan;
  const pictures = document.createElement("canvas");
  [pictures.width, pictures.height] = [FINER * width, FINER * height];
  const pen = pictures.getContext("2d");
  pen.scale(FINER, FINER);
  drawPictures(pen, plan, atlas, side / FINER);
  const figure = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  figure.append(drawn("image", { href: pictures.toDataURL(), width, height }));
  for (const { text, x, y, anchor } of plan.labels) {
    const letters = { "text-anchor": anchor === "center" ? "middle" : anchor, "font-size": LETTERS, fill: ink };
    figure.append(drawn("text", { x, y: y + LETTERS / 3, ...letters }, text));
  }
  if (plan.brackets) figure.append(drawn("path", { d: plan.brackets, fill: "none", stroke: ink }));
  return { figure, width, height };
}

function overviewLines({ texts, measures, said, labels }, all, value) {
  const names = said.map(({ label }) => label);
  const body = all.map(({ layer, head }, at) => [layer + 1, head + 1, labels[at], ...said.map(({ name }) => value(at, name))]);
  return [[texts.of_layer, texts.of_head, texts.role, ...names], ...body];
}
