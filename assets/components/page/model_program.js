// The script of a page that computes, whose models are in it or in files beside it.
import { elementIn, elementsIn } from "./elements.js";
import { openModelPage } from "./model_page.js";

const whole = elementIn(document, "main");
const apologies = elementsIn(whole, "p[hidden]");
openModelPage(whole).catch((error) => {
  whole.replaceChildren(...apologies);
  for (const apology of apologies) apology.hidden = false;
  throw error;
});
