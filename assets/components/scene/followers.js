// Elements that hear of something as long as they are on the page.

/** @template Told */
export class Followers {
  /** @type {Map<HTMLElement, (told: Told) => void>} */
  #acts = new Map();

  /** @param {HTMLElement} element @param {(told: Told) => void} act in place of one that it had */
  add(element, act) {
    this.#acts.set(element, act);
  }

  /** @param {Told} told @param {HTMLElement | null} teller which knows it already */
  tell(told, teller = null) {
    for (const [element, act] of this.#acts) {
      if (!element.isConnected) this.#acts.delete(element);
      else if (element !== teller) act(told);
    }
  }
}
