// All layers × heads of a text as one canvas of small pictures. They are drawn once, off the screen; the
// finger on one only moves an outline. Only opening a head reaches the server.
const ASIDE = 256; // width of the words beside the pictures
const NARROW = 600;

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// What stays from call to call.
function build(root) {
  const ui = { orders: element("div", "orders"), stage: element("div", "stage"), canvas: element("canvas", "all") };
  ui.aside = element("div", "aside");
  ui.preview = element("canvas", "preview");
  ui.said = element("div", "said");
  [ui.name, ui.role, ui.list] = [element("strong"), element("span", "role"), element("dl")];
  ui.open = element("button", "open");
  ui.orders.setAttribute("role", "group");
  ui.said.setAttribute("role", "status");
  ui.said.setAttribute("aria-live", "polite");
  ui.canvas.tabIndex = 0;
  ui.canvas.setAttribute("role", "application");
  ui.open.type = "button";
  ui.said.append(ui.name, ui.role, ui.list);
  ui.aside.append(ui.preview, ui.said, ui.open);
  ui.stage.append(ui.canvas, ui.aside);
  root.replaceChildren(ui.orders, ui.stage);
  new ResizeObserver(() => root.fit?.()).observe(root);
  return ui;
}

// What `unpackOverview` has read, with the head that is `chosen`, in an element that may have shown others.
export function showOverview(root, { header, thumbs, measures, chosen: own, link }, pick) {
  const ui = (root.ui ??= build(root));
  const all = headsOf(header.heads);
  const wide = header.measures.length;
  const value = (head, name) => measures[head * wide + header.measures.indexOf(name)];
  const find = ({ layer, head }) => all.findIndex((one) => one.layer === layer && one.head === head);
  const chosen = find(own);
  const order = (root.order ??= { by: "", turned: false });
  if (root.shown !== `${header.heads} ${chosen}`) root.at = chosen; // another trace or another choice
  root.shown = `${header.heads} ${chosen}`;

  const style = getComputedStyle(root);
  const text = style.getPropertyValue("--st-text-color");
  const primary = style.getPropertyValue("--st-primary-color");
  const atlas = paintAtlas(header, thumbs, themeColours(root));
  const context = ui.canvas.getContext("2d");
  const sheet = document.createElement("canvas");
  let plan = null;
  let ratio = 1;
  let hovered = -1; // a head, as `chosen` and `root.at` are

  function ranked() {
    if (!order.by) return null;
    if (order.by === "role") return byRole(header.roles, all.map((_, head) => value(head, "role")), order.turned);
    const down = header.orders.find(({ name }) => name === order.by).down;
    return ranking(all.map((_, head) => value(head, order.by)), down !== order.turned);
  }

  // The sheet: every picture, the numbers of layers and heads, captions. Drawn when its size changes.
  function drawSheet() {
    const pen = sheet.getContext("2d");
    [sheet.width, sheet.height] = [Math.round(plan.width * ratio), Math.round(plan.height * ratio)];
    pen.scale(ratio, ratio);
    drawPictures(pen, plan, atlas, header.side / ratio);
    pen.fillStyle = pen.strokeStyle = text;
    pen.globalAlpha = 0.75;
    pen.textBaseline = "middle";
    pen.font = `${LETTERS}px ${style.fontFamily}`;
    for (const { text: written, x, y, anchor } of plan.labels) {
      pen.textAlign = anchor;
      pen.fillText(written, x, y);
    }
    pen.stroke(new Path2D(plan.brackets));
  }

  function fit() {
    const room = root.clientWidth;
    if (!room) return; // in a closed fold
    root.classList.toggle("narrow", room < NARROW);
    plan = arrange(header.heads, room < NARROW ? room : room - ASIDE, ranked());
    plan.of = new Map(plan.slots.map((head, slot) => [head, slot]));
    plan.labels = order.by ? captions(plan, all) : axes(plan);
    plan.brackets = order.by ? "" : brackets(plan, bracketed(header.shared));
    ratio = globalThis.devicePixelRatio || 1;
    drawSheet();
    [ui.canvas.width, ui.canvas.height] = [sheet.width, sheet.height];
    ui.canvas.style.width = `${plan.width}px`;
    ui.canvas.style.height = `${plan.height}px`;
    context.drawImage(sheet, 0, 0);
    outline();
  }

  let outlined = [];
  function outline() {
    for (const [x, y] of outlined) restore(x, y);
    outlined = [];
    const shown = hovered < 0 ? root.at : hovered;
    frame(chosen, primary, 2.5);
    if (shown !== chosen) frame(shown, text, 1.5);
    say(shown);
  }

  function restore(x, y) {
    const box = [x - 3, y - 3, plan.size + 6, plan.size + 6].map((edge) => Math.round(edge * ratio));
    const [left, top] = [Math.max(0, box[0]), Math.max(0, box[1])];
    const [wide, high] = [Math.min(sheet.width - left, box[2]), Math.min(sheet.height - top, box[3])];
    context.clearRect(left, top, wide, high);
    context.drawImage(sheet, left, top, wide, high, left, top, wide, high);
  }

  function frame(head, colour, weight) {
    const slot = plan.of.get(head);
    if (slot === undefined) return;
    const [x, y] = corner(plan, slot);
    context.save();
    context.scale(ratio, ratio);
    context.strokeStyle = colour;
    context.lineWidth = weight;
    context.strokeRect(x - 0.5, y - 0.5, plan.size + 1, plan.size + 1);
    context.restore();
    outlined.push([x, y]);
  }

  // One head in words and as a larger picture.
  function say(head) {
    if (root.said === `${head} ${header.about}`) return;
    root.said = `${head} ${header.about}`;
    const { layer, head: own } = all[head];
    ui.name.textContent = named(header.texts, header.shared, layer, own);
    ui.role.textContent = header.labels[head] || header.texts.none;
    ui.role.classList.toggle("none", !header.labels[head]);
    ui.list.replaceChildren(
      ...header.said.flatMap(({ name, label, digits }) => {
        const number = value(head, name);
        return [element("dt", "", label), element("dd", "", Number.isNaN(number) ? "–" : number.toFixed(digits))];
      })
    );
    ui.open.style.visibility = (link || root.at !== chosen) && head === root.at ? "visible" : "hidden";
    const pen = ui.preview.getContext("2d");
    pen.clearRect(0, 0, header.side, header.side);
    pen.drawImage(atlas.canvas, ...atlas.at(head), 0, 0, header.side, header.side);
  }

  function open(head) {
    root.at = head;
    outline();
    leading.open(head, () => pick(all[head]));
  }

  function orders() {
    return [{ name: "", label: header.texts.layers, down: false }, ...header.orders].map(({ name, label, down }) => {
      const button = element("button", "", label);
      button.type = "button";
      button.setAttribute("aria-pressed", order.by === name);
      if (order.by === name && name) {
        button.append(element("span", "way", (name === "role" ? order.turned : down !== order.turned) ? " ↓" : " ↑"));
        button.title = header.texts.turn;
      }
      button.onclick = () => {
        order.turned = name && order.by === name ? !order.turned : false;
        order.by = name;
        redraw(ui.orders, orders());
        fit();
      };
      return button;
    });
  }

  const under = ({ offsetX, offsetY }) => {
    const slot = plan ? hit(plan, offsetX, offsetY) : -1;
    return slot < 0 ? -1 : plan.slots[slot];
  };
  const point = (head) => {
    if (head === hovered) return;
    hovered = head;
    outline();
  };
  ui.canvas.onpointermove = (event) => {
    const head = under(event);
    ui.canvas.style.cursor = head < 0 ? "default" : "pointer";
    point(head);
  };
  ui.canvas.onpointerleave = () => point(-1);
  ui.canvas.onpointerdown = (event) => { root.finger = event.pointerType === "touch"; };
  ui.canvas.onclick = (event) => {
    const head = under(event);
    if (head < 0) return;
    // A finger hides what it points at: the first tap shows a head, the second one or the button opens it.
    if (!root.finger || head === root.at) return open(head);
    root.said = null;
    root.at = head;
    outline();
  };
  ui.canvas.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") open(root.at);
    else {
      const slot = step(plan, plan.of.get(root.at), event.key);
      if (slot === plan.of.get(root.at) && !/^(Arrow|Home|End)/.test(event.key)) return;
      hovered = -1;
      root.said = null;
      root.at = plan.slots[slot];
      outline();
    }
    event.preventDefault();
  };
  ui.open.onclick = () => open(root.at);
  ui.open.textContent = header.texts.open;
  ui.canvas.setAttribute("aria-label", header.texts.canvas);
  ui.orders.setAttribute("aria-label", header.texts.order);
  [ui.preview.width, ui.preview.height] = [header.side, header.side];
  ui.preview.setAttribute("aria-hidden", "true");
  redraw(ui.orders, orders());
  root.said = null;
  root.fit = fit;
  fit();
  saveable(root, {
    meta: header.meta,
    look: () => ({ paper: style.getPropertyValue("--st-background-color"), ink: text, font: style.fontFamily }),
    drawn: async () => overviewDrawn(plan, atlas, { ink: text, side: header.side }),
    lines: () => overviewLines(header, all, value),
  });
  const leading = leads(root, link, chosen);
}
