// A word of the sentence is typed over where it stands. Enter and losing focus commit the word, Escape gives it back.

import { make } from "../page/elements.js";

const MAX_WORD = 100; // characters, as many as the server takes (pages/see/_heads/sentences.py)

/**
 * @param {HTMLElement} element of the word
 * @param {string} name of the field, to screen readers
 * @param {(word: string) => void} commit another word
 * @param {() => void} leave by a key, so that the keyboard has another place
 */
export function typeOver(element, name, commit, leave) {
  const word = element.querySelector("bdi");
  if (!word) return;
  const before = word.textContent ?? "";
  const size = Math.max(4, before.length);
  const input = Object.assign(make("input"), { value: before, ariaLabel: name, size, maxLength: MAX_WORD });
  let isOpen = true;
  /** @param {boolean} isKept */
  const close = (isKept) => {
    if (!isOpen) return; // a field that is taken away loses its focus, too
    isOpen = false;
    input.replaceWith(word);
    const after = input.value.trim();
    if (isKept && after && after !== before) commit(after);
  };
  for (const act of ["click", "dblclick", "keydown"]) input.addEventListener(act, (event) => event.stopPropagation());
  input.addEventListener("keydown", ({ key, isComposing }) => {
    if (isComposing || (key !== "Enter" && key !== "Escape")) return;
    close(key === "Enter");
    leave();
  });
  input.addEventListener("blur", () => close(true));
  word.replaceWith(input);
  input.focus();
  input.select();
}
