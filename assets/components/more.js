// How much of a text goes on beyond its drawing: "← 12 more" and "23 more →", which a press scrolls to. They
// stand at the beginning and the end of what is in sight; keys and screen readers have the tokens themselves.
const FURTHER = 0.8; // of what is in sight

export class More {
  // `way` is "left" and "right", or "up" and "down", of the box that scrolls; `texts` are the view's words.
  constructor(stage, scroll, across, texts) {
    this.words = { left: texts.more_left, right: texts.more_right, up: texts.more_up, down: texts.more_down };
    this.ends = (across ? ["left", "right"] : ["up", "down"]).map((way, nth) => {
      const button = make("button", `more ${way}`);
      Object.assign(button, { type: "button", tabIndex: -1, hidden: true });
      button.setAttribute("aria-hidden", "true");
      button.onclick = (event) => {
        event.stopPropagation(); // not a click on the drawing
        const by = (nth ? FURTHER : -FURTHER) * (across ? scroll.clientWidth : scroll.clientHeight);
        scroll.scrollBy({ [across ? "left" : "top"]: by, behavior: "smooth" });
      };
      stage.append(button);
      return button;
    });
  }

  // So many tokens are not in sight before and after.
  show(...counts) {
    this.ends.forEach((button, nth) => {
      const [count, way] = [counts[nth], button.classList[1]];
      button.hidden = !count;
      const text = count ? fill(this.words[way], { count }) : "";
      if (button.textContent !== text) button.textContent = text;
    });
  }
}
