// The head view's controls: drawings, layers, direction, options, saving; the heads; what Enter would do.
const SEGMENTS = 16; // layers that get a button each

function pressed(text, on, act, className = "") {
  const button = make("button", className, text);
  button.type = "button";
  button.setAttribute("aria-pressed", on);
  button.onclick = act;
  return button;
}

function group(label, buttons, className = "") {
  const box = make("div", `group ${className}`);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", label);
  box.append(...buttons);
  return box;
}

// New controls in place of old ones; whoever was on one of them stays on it, and menus stay open.
function renew(container, elements) {
  const every = () => [...container.querySelectorAll("button, input, select, summary")];
  const focused = every().indexOf(container.getRootNode().activeElement);
  const open = [...container.querySelectorAll("details")].map((menu) => menu.open);
  container.replaceChildren(...elements);
  container.querySelectorAll("details").forEach((menu, i) => (menu.open = open[i] ?? false));
  every()[focused]?.focus({ preventScroll: true });
}

function showBar(view) {
  const { texts, state } = view;
  const drawings = Object.keys(DRAWINGS).map((name) => {
    const button = pressed(texts[`draw_${name}`], state.drawing === name, () => view.set("drawing", name));
    if (!view.offers(name)) Object.assign(button, { disabled: true, title: texts.no_arcs });
    return button;
  });
  const parts = [group(texts.drawing, drawings, "segments")];
  if (view.header.layers > 1) parts.push(layers(view));
  if ((state.drawing === "text" && !view.two) || state.drawing === "arcs") {
    const sides = ["query", "key"].map((side) => pressed(texts[`side_${side}`], state.side === side, () => view.set("side", side)));
    parts.push(group(texts.direction, sides, "segments"));
  }
  parts.push(options(view), saving(view));
  renew(view.bar, parts);
}

function layers(view) {
  const { texts, header, state } = view;
  const name = (number) => fill(texts.layer, { layer: number + 1 });
  const every = Array.from({ length: header.layers }, (_, number) => number);
  if (header.layers <= SEGMENTS) {
    const buttons = every.map((number) => {
      const button = pressed(String(number + 1), state.layer === number, () => view.toLayer(number));
      button.setAttribute("aria-label", name(number));
      button.disabled = !view.open && !view.has(number); // a page on its own cannot ask for it
      return button;
    });
    const box = group(texts.layers, buttons, "segments");
    box.prepend(make("span", "label", texts.layers));
    return box;
  }
  const select = make("select");
  select.setAttribute("aria-label", texts.layers);
  const option = (number) =>
    Object.assign(make("option", "", name(number)), {
      value: number,
      selected: number === state.layer,
      disabled: !view.open && !view.has(number),
    });
  select.append(...every.map(option));
  select.onchange = () => view.toLayer(Number(select.value));
  return select;
}

function menu(text, parts) {
  const box = make("details", "menu");
  const inside = make("div", "inside");
  inside.append(...parts);
  box.append(make("summary", "", text), inside);
  box.onkeydown = (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.stopPropagation();
    box.open = false;
    box.firstChild.focus();
  };
  box.ontoggle = () => {
    if (!box.open) return;
    for (const other of box.parentElement.querySelectorAll("details[open]")) if (other !== box) other.open = false;
  };
  return box;
}

function options(view) {
  const { texts, state } = view;
  const field = (text, input) => {
    const label = make("label", "", text);
    label.append(input);
    return label;
  };
  const least = Object.assign(make("input"), { type: "range", min: 0, max: 0.5, step: 0.01, value: view.least });
  const shown = make("output", "", view.least.toFixed(3));
  least.oninput = () => {
    shown.textContent = Number(least.value).toFixed(3);
    state.least = Number(least.value);
    view.redraw();
  };
  const most = Object.assign(make("input"), { type: "number", min: 0, max: 99, step: 1, value: state.most || "", placeholder: texts.all });
  most.oninput = () => {
    state.most = Math.max(0, Math.floor(Number(most.value) || 0));
    view.redraw();
  };
  const tick = (name, text) => {
    const box = Object.assign(make("input"), { type: "checkbox", checked: state[name] });
    box.onchange = () => view.set(name, box.checked);
    const label = make("label", "tick");
    label.append(box, text);
    return label;
  };
  const threshold = field(texts.least, least);
  threshold.append(shown);
  const parts = [threshold, field(texts.most, most)];
  if (view.data.some(({ special }) => special.query.size + special.key.size)) parts.push(tick("plain", texts.hide_special));
  if (view.header.groups?.some(Boolean)) parts.push(tick("words", texts.words));
  parts.push(make("p", "keys", texts.keys));
  return menu(texts.options, parts);
}

function saving(view) {
  const { texts } = view;
  const item = (text, act) => {
    const button = make("button", "", text);
    button.type = "button";
    button.onclick = (event) => {
      event.target.closest("details").open = false;
      act();
    };
    return button;
  };
  const parts = [
    item("PNG", () => saveAs(view, "png")),
    item("SVG", () => saveAs(view, "svg")),
    item("CSV", () => saveAs(view, "csv")),
  ];
  if (view.page) parts.push(item(texts.save_page, () => saveAs(view, "html")));
  return menu(texts.save, parts);
}

async function saveAs(view, kind) {
  const layer = fill(view.texts.layer, { layer: view.state.layer + 1 });
  const heads = fill(view.texts.heads_named, { heads: view.heads.map((head) => head + 1).join(", ") });
  const name = `${view.header.file}-layer-${view.state.layer + 1}-${view.state.drawing}.${kind}`;
  if (kind === "html") {
    const { drawing, plain, words } = view.state;
    const inView = { ...chosen(view), on: view.heads, drawing, plain, words, brief: false };
    const page = await pageOf(view.page, { ...view.header, ...inView }, view.bytes);
    return download(utf16(page), name);
  }
  if (kind === "csv") {
    const rows = view.data.flatMap((panel) =>
      table(panel, view.layer(panel), view.heads, view.of(panel).pinned).map((row) => [panel.title, ...row])
    );
    const weight = view.state.plain ? "weight_rescaled" : "weight";
    return download(csvOf(["sentence", "layer", "head", "query", "query_token", "key", "key_token", weight], rows), name, "text/csv");
  }
  const { look, font, ink: colour, background } = view;
  const captions = view.data.map(({ title }) =>
    [title, view.header.source, layer, heads, ...(view.state.plain ? [view.texts.rescaled] : [])].join(" · ")
  );
  const options = { look: (head) => view.look(head), font, ink: colour, background, captions };
  const svg = svgOf(view.drawings.map(({ drawing }) => drawing.scene()), options);
  if (kind === "svg") return download(svg.text, name, "image/svg+xml");
  return download(await pngOf(svg), name, "image/png");
}

// Chips are made once and then changed in place: a double-click needs the same button twice.
function showChips(view) {
  const { texts, header } = view;
  const made = JSON.stringify([header.heads, header.kv, texts.head]);
  if (view.chips.dataset.made !== made) {
    view.chips.dataset.made = made;
    view.chips.setAttribute("aria-label", texts.chips);
    const heads = Array.from({ length: header.heads }, (_, head) => chip(view, head));
    const all = pressed(texts.all_heads, false, () => {
      const complete = view.heads.length === view.every.length;
      view.switchHeads(new Set(complete ? view.header.on : view.every));
    }, "chip every");
    view.chips.replaceChildren(...sharing(view, heads), all);
  }
  const { every, heads } = view;
  [...view.chips.querySelectorAll(".chip")].forEach((button, head) => {
    if (head === header.heads) return button.setAttribute("aria-pressed", heads.length === every.length);
    const { colour, dash } = view.look(head);
    button.style.setProperty("--head", colour);
    button.classList.toggle("dashed", dash.length > 0);
    button.setAttribute("aria-pressed", heads.includes(head));
    button.disabled = !view.open && !every.includes(head);
    button.title = every.includes(head) ? texts.chip_help : texts.chip_load;
  });
}

function chip(view, head) {
  const button = pressed(fill(view.texts.head, { head: head + 1 }), false, null, "chip");
  const here = () => view.every.includes(head);
  button.onclick = (event) => {
    if (!here()) return view.open({ ...chosen(view), head });
    view.switchHeads(afterClick(view.on, head, event.shiftKey ? "range" : "toggle", view.every, view.last));
    view.last = head;
  };
  button.ondblclick = () => here() && view.switchHeads(afterClick(view.on, head, "solo", view.every));
  return button;
}

// Below the drawing: that something is pinned and how to let it go, and what could be shown on the page.
function showFoot(view) {
  const { texts } = view;
  const pinned = view.pinned?.some(Boolean);
  const token = chosenToken(view);
  const parts = [];
  if (pinned) {
    const release = pressed(texts.release, false, () => {
      view.pinned = null;
      view.update();
    });
    release.removeAttribute("aria-pressed");
    parts.push(release);
  }
  const { header } = view;
  const elsewhere =
    view.state.layer !== header.layer ||
    (token !== null && token !== header.token) ||
    chosenHead(view) !== header.head;
  if (view.open && elsewhere) {
    const names = { layer: view.state.layer + 1, head: chosenHead(view) + 1 };
    const show = pressed(fill(texts.show_below, names), false, () => view.toServer(), "primary");
    show.removeAttribute("aria-pressed");
    parts.push(show);
  }
  const now = parts.map((part) => part.textContent).join("|");
  if (view.foot.dataset.now === now) return;
  view.foot.dataset.now = now;
  renew(view.foot, parts);
}
