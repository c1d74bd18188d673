// What is written over the cells of a matrix and beside them: numbers, frames, tokens.
const TICK = 13; // pixels a cell needs for its token to be written beside it
const DIGITS = 34; // and for its number to be written inside
const LABELS = 96; // room for the tokens, above and on the left

// The number of each cell in sight, where there is room for it.
function writeNumbers(matrix, context) {
  if (matrix.window.cell < DIGITS) return;
  const { window: { x, y, cell } } = matrix;
  const layer = matrix.view.layer(matrix.panel);
  context.font = `${Math.min(13, cell / 3)}px ${matrix.view.font}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let query = matrix.window.seen("y")[0]; query < matrix.window.seen("y")[1]; query++) {
    const row = meanAcross(layer, matrix.view.heads, { side: "query", tokens: [query] });
    for (let key = matrix.window.seen("x")[0]; key < matrix.window.seen("x")[1]; key++) {
      if (!seenByAny(layer, matrix.view.heads, query, key)) continue;
      context.fillStyle = ink(matrix.colour(row[key]).slice(0, 3));
      context.fillText(short(row[key]), x + (key + 0.5) * cell, y + (query + 0.5) * cell);
    }
  }
}

// The rows or columns of the focus, and the cell under the pointer or the keyboard.
function drawFrames(matrix, context) {
  const { window: { x, y, cell, width, height }, cursor } = matrix;
  const { focus } = matrix.view.of(matrix.panel);
  context.strokeStyle = matrix.view.accent;
  context.lineWidth = 2;
  for (const token of focus?.tokens ?? []) {
    if (focus.side === "query") context.strokeRect(x, y + token * cell, matrix.window.columns * cell, Math.max(cell, 1));
    else context.strokeRect(x + token * cell, y, Math.max(cell, 1), matrix.window.rows * cell);
  }
  if (!cursor) return;
  context.lineWidth = 1;
  context.globalAlpha = 0.7;
  context.strokeRect(0, y + cursor.query * cell, width, Math.max(cell, 1));
  context.strokeRect(x + cursor.key * cell, 0, Math.max(cell, 1), height);
  context.globalAlpha = 1;
}

// Who looks, on the left, and who is looked at, above: as many as there is room for.
function writeTokens(matrix, context) {
  const { cell, x, y } = matrix.window;
  const every = Math.max(1, Math.ceil(TICK / cell));
  const { focus } = matrix.view.of(matrix.panel);
  context.fillStyle = matrix.view.ink;
  context.textBaseline = "middle";
  const tick = (at, side) => {
    const own = focus?.side === side && focus.tokens.includes(at);
    context.font = `${own ? 600 : 400} 12px ${matrix.view.font}`;
    context.fillText(shortened(context, listOf(matrix.panel, side)[at], LABELS - 10), 0, 0);
  };
  const shown = ([from, to]) => {
    const found = [];
    for (let at = Math.ceil(from / every) * every; at < to; at += every) found.push(at);
    return found;
  };
  for (const at of shown(matrix.window.seen("y"))) {
    context.save();
    context.textAlign = "right";
    context.translate(LABELS - 6, LABELS + y + (at + 0.5) * cell);
    tick(at, "query");
    context.restore();
  }
  for (const at of shown(matrix.window.seen("x"))) {
    context.save();
    context.textAlign = "left";
    context.translate(LABELS + x + (at + 0.5) * cell, LABELS - 6);
    context.rotate(-Math.PI / 2.6);
    tick(at, "key");
    context.restore();
  }
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const characters = [...text];
  while (characters.length && context.measureText(`${characters.join("")}…`).width > width) characters.pop();
  return `${characters.join("")}…`;
}
