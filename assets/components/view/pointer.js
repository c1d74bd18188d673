// The finger on a drawing: what is under it is looked at, a click holds it.

import { listOf } from "../numbers/panel.js";
import { make } from "../page/elements.js";
import { exact, fill, isolated } from "../page/wording.js";

/** @param {import("./head_view.js").HeadView} view */
export function followPointer(view, { panel, stage, drawing, status }) {
  const tokenOf = (event) => event.target.closest?.(".token");
  const focusOf = (element, at = Number(element.dataset.at)) => ({
    side: element.dataset.side === "token" ? view.state.side : element.dataset.side,
    tokens: [at],
  });
  const hover = (focus) => {
    if (JSON.stringify(view.hover) !== JSON.stringify(focus && view.everywhere(panel.nth, focus)))
      view.point(panel.nth, focus);
  };
  // The line or cell under the pointer says its own number.
  const point = (event) => {
    const line = drawing.hit(event);
    if (drawing.curves && line !== view.line) drawing.paint(line);
    if (line || view.line) view.pointHead(line?.head ?? null);
    view.line = line;
    const text = line ? exactly(view, panel, line) : null;
    if (!text) return view.say();
    if (status.dataset.text !== text) status.replaceChildren(make("span", "", text));
    status.dataset.text = text;
  };
  stage.addEventListener("pointermove", (event) => {
    const element = tokenOf(event);
    if (element) return event.pointerType === "touch" ? undefined : hover(focusOf(element));
    hover(null);
    point(event);
  });
  stage.addEventListener("pointerleave", () => {
    hover(null);
    if (view.line) {
      drawing.paint(null);
      view.pointHead(null);
    }
    view.line = null;
    drawing.mark?.(null);
    view.say();
  });
  stage.addEventListener("click", (event) => {
    const element = tokenOf(event);
    const cell = element ? null : drawing.hit(event);
    if (!element && !(drawing.map && cell)) return point(event); // a finger does not hover
    const { side, tokens } = element ? focusOf(element) : { side: "query", tokens: [cell.query] };
    view.choose(panel.nth, side, tokens[0], event.shiftKey || event.ctrlKey || event.metaKey);
  });
}

function exactly(view, panel, { query, key, head, weight, hidden }) {
  const { texts } = view;
  const layer = view.layer(panel);
  const who =
    head === null
      ? fill(texts.mean_of, { heads: view.heads.map((h) => h + 1).join(", ") })
      : fill(texts.one_head, { heads: head + 1 });
  const [from, to] = [listOf(panel, "query")[query], listOf(panel, "key")[key]].map(isolated);
  if (hidden && layer.hidden?.has(key)) return fill(texts.cell_left_out, { to });
  if (hidden) return fill(texts.cell_hidden, { from, to });
  const score = head === null || !layer.score ? NaN : layer.score(head, query, key);
  const value = exact(weight);
  const words = fill(Number.isNaN(score) ? texts.cell : texts.cell_score, {
    who,
    from,
    to,
    value,
    score: score.toFixed(3),
  });
  return layer.away ? `${words} ${texts.rescaled}` : words;
}
