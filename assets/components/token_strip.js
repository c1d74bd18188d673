// The sentence as its tokens. The chosen token is the query; every token is shaded by the weight that the query
// gives it, with the number below. Choosing another token is a button press.
// Data: { title, tokens, weights (null where hidden; null for a text that is not looked at), limit, chosen, hints }.
import { inkOn, shade, themeColours } from "./colours.js";
import { make, makeButton, renew } from "./elements.js";
import { drawn } from "./streamlit.js";
import { isRtl } from "./text.js";

function tokenButton({ tokens, weights, limit, chosen, hints }, index, colours, choose) {
  const element = makeButton("", "", choose);
  const word = make("bdi", "", tokens[index]);
  const number = make("span");
  const weight = weights?.[index];
  if (!weights)
    element.className = "unshaded"; // queries only: they have no weights
  else if (weight === null) {
    element.className = "hidden";
    number.textContent = "×";
  } else {
    const colour = shade(colours, weight / limit);
    word.style.backgroundColor = `rgb(${colour})`;
    word.style.color = inkOn(colour);
    number.textContent = weight.toFixed(2);
  }
  element.title = hints[index];
  element.setAttribute("aria-pressed", String(index === chosen));
  element.append(word, number);
  return element;
}

// Scroll a long sentence, and nothing but the sentence, to the chosen token.
function revealChosen(strip, chosen) {
  const top = chosen.offsetTop - strip.offsetTop;
  const beyond = top < strip.scrollTop || top + chosen.offsetHeight > strip.scrollTop + strip.clientHeight;
  if (beyond) strip.scrollTop = top;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const strip = parentElement.querySelector(".strip");
  const colours = themeColours(strip);
  strip.setAttribute("aria-label", data.title);
  strip.dir = isRtl(data.tokens) ? "rtl" : "ltr";
  const elements = data.tokens.map((_, index) =>
    tokenButton(data, index, colours, () => setTriggerValue("picked", index)),
  );
  renew(strip, elements);
  drawn(strip);
  revealChosen(strip, elements[data.chosen]);
}
