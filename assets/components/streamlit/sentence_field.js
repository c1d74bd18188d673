// The effect of Enter in a field for a sentence. tests/browser/test_streamlit.py fails if Streamlit changes the field.
import { claim, targetOf } from "../page/elements.js";
import { KEY } from "./adapter.js";

const SENTENCES = ["text", "twin", "target"].map((key) => `.${KEY}${key} textarea`).join(", ");
export const COMPOSING = 229; // the key code during a composition in Safari, which calls the last Enter no part of it

// Enter applies a sentence, and says so beside a text that is not applied yet; Shift+Enter breaks the line. Streamlit
// applies a field of several lines with Ctrl+Enter alone. Enter that ends a composition, as of Chinese characters,
// belongs to the composition.
export function applyOnEnter() {
  /** @param {KeyboardEvent} event */
  const apply = (event) => {
    const { key, shiftKey, ctrlKey, metaKey, altKey, isComposing, keyCode } = event;
    const target = targetOf(event);
    if (key !== "Enter" || shiftKey || altKey || !target?.matches(SENTENCES)) return;
    if (isComposing || keyCode === COMPOSING) return;
    tell(event);
    if (ctrlKey || metaKey) return;
    claim(event);
    target.dispatchEvent(new KeyboardEvent("keydown", { key, code: "Enter", ctrlKey: true, bubbles: true }));
  };
  /** @param {FocusEvent} event */
  const name = (event) => {
    const target = targetOf(event);
    // On a phone, the key says what it does.
    if (target instanceof HTMLTextAreaElement && target.matches(SENTENCES)) target.enterKeyHint = "go";
  };
  // The page follows a text that is typed only once it is applied; leaving the field applies it, too.
  /** @param {Event} event */
  const tell = (event) => {
    const target = targetOf(event);
    if (target?.matches(SENTENCES))
      target.closest(`[class*="${KEY}"]`)?.toggleAttribute("data-typed", event.type === "input");
  };
  window.addEventListener("keydown", apply, true);
  for (const act of ["input", "focusout"]) window.addEventListener(act, tell);
  window.addEventListener("focusin", name);
}
