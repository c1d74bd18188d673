// The button over code copies it (pages/_kit/components.py).
import { targetOf } from "../page/elements.js";

const COPIED = 2000; // milliseconds in which the button says so

export function copyCode() {
  document.addEventListener("click", (event) => {
    const button = targetOf(event)?.closest(".code-block > button");
    const code = button?.previousElementSibling;
    if (!(button instanceof HTMLElement && code)) return;
    getSelection()?.selectAllChildren(code);
    // A page without https has no other clipboard; where this one fails, the code is marked.
    if (!document.execCommand("copy")) return;
    getSelection()?.removeAllRanges();
    const { copy, copied = "" } = button.dataset;
    button.textContent = copied;
    setTimeout(() => {
      button.textContent = copy ?? "";
    }, COPIED);
  });
}
