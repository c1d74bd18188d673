// The formulas of a layer in one line; each symbol leads to its step on the page Steps, and is lit while that is shown.

import { actInstead, elementIn, make } from "../page/elements.js";
import { followStep, goToStep, OPERATION, stepInFocus } from "../scene/step.js";
import { fitHeight } from "../streamlit/adapter.js";

/**
 * A part of a formula: its symbols with what is raised and lowered, and the step that it leads to, "" for none.
 * @typedef {{ symbols: [base: string, up: string, down: string][], step: string, title: string }} FormulaPart
 */
/** @typedef {{ formulas: FormulaPart[][], here: boolean, lit: string[] }} FormulaPage `here`: on the page Steps */

/** @param {string} step */
function stepAddress(step) {
  const url = new URL("./steps", document.baseURI);
  url.search = location.search;
  url.searchParams.delete("steps_view");
  url.searchParams.set(OPERATION, step);
  return url.href;
}

/** @param {FormulaPart} part @param {boolean} here */
function drawPart({ symbols, step, title }, here) {
  const drawn = symbols.flatMap(([base, up, down]) => {
    const both = make("span", "both", make("sup", "", up), make("sub", "", down));
    // One Latin or Greek letter is a quantity; names of functions and signs stand upright.
    return [/^[A-Za-z]$/.test(base) ? make("i", "", base) : base, (up || down) && both];
  });
  if (!step) return make("span", "", ...drawn);
  const link = Object.assign(make("a", "", ...drawn), { title, target: "_self" });
  const point = () => {
    link.href = stepAddress(step);
  };
  point();
  link.dataset.step = step;
  for (const act of ["pointerenter", "focus"]) link.addEventListener(act, point); // the scene may have moved
  if (here) actInstead(link, () => goToStep(step));
  return link;
}

/** @param {import("../streamlit/adapter.js").Mounted<FormulaPage>} mounted */
export default function ({ data, parentElement }) {
  const root = elementIn(parentElement, ".formulas");
  root.replaceChildren(
    ...data.formulas.map((parts) => make("span", "formula", ...parts.map((part) => drawPart(part, data.here)))),
  );
  const light = () => {
    const lit = data.here ? [stepInFocus()] : data.lit;
    for (const link of root.querySelectorAll("a")) {
      const is = lit.includes(link.dataset.step ?? "");
      link.classList.toggle("now", is);
      link.ariaCurrent = is && data.here ? "step" : null;
    }
  };
  light();
  if (data.here) followStep(root, light);
  fitHeight(root);
}
