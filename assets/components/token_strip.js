// The sentence as its tokens. The chosen token is the query; every token is shaded by the weight
// that the query gives it, with the number below. Choosing another token is a button press.
// Data: { title, tokens, weights (null where hidden; null for a text that is not looked at), limit, chosen, hints, hides (null, or what a press
// does to each token besides: null for nothing) }.

function button({ tokens, weights, limit, chosen, hints, hides }, index, colours) {
  const element = document.createElement("button");
  const word = document.createElement("bdi");
  const number = document.createElement("span");
  const weight = weights?.[index];
  word.textContent = tokens[index];
  if (!weights) element.className = "plain"; // these look, nobody looks at them
  else if (weight === null) {
    element.className = "hidden";
    number.textContent = "×";
  } else {
    const colour = shade(colours, weight / limit);
    word.style.backgroundColor = `rgb(${colour})`;
    word.style.color = ink(colour);
    number.textContent = weight.toFixed(2);
  }
  element.type = "button";
  element.title = hides?.[index] ?? hints[index];
  element.classList.toggle("hides", Boolean(hides?.[index]));
  element.setAttribute("aria-pressed", index === chosen);
  element.append(word, number);
  return element;
}

// Scroll a long sentence, and nothing but the sentence, to the chosen token.
function reveal(strip, chosen) {
  const top = chosen.offsetTop - strip.offsetTop;
  const beyond = top < strip.scrollTop || top + chosen.offsetHeight > strip.scrollTop + strip.clientHeight;
  if (beyond) strip.scrollTop = top;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const strip = parentElement.querySelector(".strip");
  const colours = themeColours(strip);
  strip.setAttribute("aria-label", data.title);
  strip.dir = isRtl(data.tokens) ? "rtl" : "ltr";
  const elements = data.tokens.map((_, index) => {
    const element = button(data, index, colours);
    element.onclick = () => setTriggerValue("picked", index);
    return element;
  });
  redraw(strip, elements);
  reveal(strip, elements[data.chosen]);
}
