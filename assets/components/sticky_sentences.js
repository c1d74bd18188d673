// On a phone a sentence stays in sight above what is scrolled (head_view.css): of two the one whose drawing is
// looked at, and above matrices the one that they are of.

export class StickySentences {
  /** @type {HTMLElement[]} of each panel */
  sentences = [];

  /** @param {import("./head_view.js").HeadView} view */
  constructor(view) {
    this.view = view;
    const scrolled = () => {
      if (view.root.isConnected) this.update();
      else document.removeEventListener("scroll", scrolled, true);
    };
    document.addEventListener("scroll", scrolled, { capture: true, passive: true });
  }

  // What lies behind the one that is in sight is not seen beside it.
  update() {
    if (this.sentences.length < 2) return;
    const stuck = this.sentences.map(isStuck);
    const { panels, matrices } = this.view;
    const below = panels.nextElementSibling.getBoundingClientRect().top;
    const isBelow = !matrices.root.hidden && below <= this.sentences.at(-1).getBoundingClientRect().bottom;
    const inSight = isBelow ? matrices.nth : stuck.lastIndexOf(true);
    this.sentences.forEach((sentence, at) => {
      sentence.classList.toggle("behind", stuck[at] && at !== inSight);
    });
  }
}

// Is it lower than its place in the page?
function isStuck(sentence) {
  const { position, marginBottom } = getComputedStyle(sentence);
  if (position !== "sticky") return false;
  const place = sentence.nextElementSibling.getBoundingClientRect().top - parseFloat(marginBottom);
  return sentence.getBoundingClientRect().bottom > place + 1;
}
