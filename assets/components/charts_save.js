// A figure as a file: SVG and PNG with its title above and where it comes from below, CSV of its numbers.
// It stands behind charts.js, which calls addMenu with what a figure is asked for (charts_plot.js, saveable.js):
// { meta: { title, caption, file }, look() → { paper, ink, font }, drawn() → { figure, width, height }, lines() },
// the last two at once or as promises.
// User text becomes text nodes only.
const SVG = "http://www.w3.org/2000/svg";
const [PAD, TITLE, SMALL] = [14, 14, 10.5]; // pixels: around a figure, and of its letters
const FORMATS = { png: savePng, svg: saveSvg, csv: saveCsv }; // the last one of figures that have `lines`
// What no XML may hold: control characters and halves of surrogate pairs.
const NOT_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

// The menu in a box: one quiet button, which opens three. `asked` says what the figure in it is by now.
function addMenu(box, asked, words) {
  if (box.querySelector(":scope > .headscope-save")) return;
  const menu = document.createElement("div");
  const opener = button("", words.open);
  const choices = document.createElement("span");
  menu.className = "headscope-save";
  opener.append(icon());
  choices.append(...Object.keys(FORMATS).map((format) => choice(asked, words, format, close)));
  menu.append(choices, opener);
  box.append(menu);
  show(false);

  function show(open) {
    choices.hidden = !open;
    opener.setAttribute("aria-expanded", open);
    choices.lastChild.hidden = !asked().lines;
    const { paper } = asked().look();
    if (paper) menu.style.setProperty("--paper", paper);
  }
  function close() {
    show(false);
    opener.focus({ preventScroll: true });
  }
  opener.onclick = () => {
    show(choices.hidden);
    if (!choices.hidden) choices.firstChild.focus({ preventScroll: true });
  };
  menu.onkeydown = (event) => {
    if (event.key !== "Escape" || choices.hidden) return;
    event.stopPropagation();
    close();
  };
  menu.addEventListener("focusout", ({ relatedTarget }) => menu.contains(relatedTarget) || show(false));
}

function choice(asked, words, format, close) {
  const element = button(words[format], `${words.open}: ${words[format]}`);
  element.onclick = async () => {
    close();
    const content = await FORMATS[format](asked());
    const link = document.createElement("a");
    link.download = `${asked().meta.file ?? "headscope"}.${format}`;
    link.href = URL.createObjectURL(content);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  return element;
}

function button(text, name) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.title = name;
  element.setAttribute("aria-label", name);
  return element;
}

function icon() {
  const path = node("path", { d: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11", fill: "none", stroke: "currentColor" });
  const drawn = node("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": true });
  path.setAttribute("stroke-width", 1.5);
  drawn.append(path);
  return drawn;
}

function node(name, attributes, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

async function saveSvg(figure) {
  return new Blob([(await composed(figure)).text], { type: "image/svg+xml" });
}

// Twice as many pixels as on screen. The picture of an SVG cannot use the fonts of its page: they go in.
async function savePng(figure) {
  const { text, width, height } = await composed(figure, await fontFaces(figure.look().font));
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

// The figure as it is drawn, zoom and all, between its title and its caption.
async function composed({ meta, look, drawn }, style = "") {
  const { paper, ink, font } = look();
  const { figure, width: inner, height: high } = await drawn();
  const { title = "", caption = [] } = meta;
  const width = Math.ceil(inner) + 2 * PAD;
  const head = wrap(title, `600 ${TITLE}px ${font}`, inner);
  const foot = caption.flatMap((line) => wrap(line, `${SMALL}px ${font}`, inner));
  const top = PAD + head.length * TITLE * 1.4 + 6;
  const height = Math.ceil(top + high + foot.length * SMALL * 1.5 + 2 * PAD);
  const page = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": font });
  if (style) page.append(node("style", {}, style));
  page.append(node("rect", { width, height, fill: paper }));
  const write = (line, y, more) => page.append(node("text", { x: PAD, y, fill: ink, ...more }, line));
  head.forEach((line, i) => write(line, PAD + (i + 0.8) * TITLE * 1.4, { "font-size": TITLE, "font-weight": 600 }));
  for (const [key, value] of Object.entries({ x: PAD, y: top, overflow: "visible" })) figure.setAttribute(key, value);
  page.append(figure);
  foot.forEach((line, i) => write(line, top + high + PAD + (i + 0.8) * SMALL * 1.5, { "font-size": SMALL }));
  return { text: new XMLSerializer().serializeToString(page), width, height };
}

// Lines no wider than `width`, broken at spaces, or anywhere in what has none.
function wrap(text, font, width) {
  const pen = document.createElement("canvas").getContext("2d");
  const lines = [];
  let rest = [...text.replace(NOT_XML, "\ufffd").replace(/\s+/g, " ").trim()];
  const fits = (count) => pen.measureText(rest.slice(0, count).join("")).width <= width;
  pen.font = font;
  while (rest.length) {
    let count = 1;
    while (count < rest.length && fits(count + 1)) count += 1;
    const space = rest.lastIndexOf(" ", count);
    if (count < rest.length && space > 0) count = space;
    lines.push(rest.slice(0, count).join("").trim());
    rest = rest.slice(count);
    if (rest[0] === " ") rest.shift();
  }
  return lines;
}

// The page's own font files of these families, inside the style itself.
async function fontFaces(families) {
  const wanted = families.split(",").map((name) => name.replace(/["']/g, "").trim());
  const rules = [...document.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].map((rule) => ({ rule, base: sheet.href ?? document.baseURI }));
    } catch {
      return []; // a sheet from elsewhere cannot be read
    }
  });
  const faces = rules.filter(({ rule }) => {
    const named = rule.style?.getPropertyValue("font-family").replace(/["']/g, "");
    return rule instanceof CSSFontFaceRule && wanted.includes(named) && rule.style.fontStyle !== "italic";
  });
  const texts = await Promise.all(
    faces.map(async ({ rule, base }) => {
      const [, address] = rule.style.getPropertyValue("src").match(/url\(["']?([^"')]+)/) ?? [];
      const answer = address && (await fetch(new URL(address, base)).catch(() => null));
      if (!answer?.ok) return "";
      const data = await dataUrl(await answer.blob());
      const weight = rule.style.getPropertyValue("font-weight") || "normal";
      return `@font-face{font-family:"${wanted[0]}";font-weight:${weight};src:url(${data})}`;
    }),
  );
  return texts.join("");
}

function dataUrl(blob) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  });
}

async function saveCsv(figure) {
  const lines = await figure.lines();
  const text = lines.map((line) => line.map(field).join(",")).join("\r\n");
  return new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" });
}

// A word or a number. Words that a spreadsheet would run as a formula are made harmless, as in our other tables.
function field(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(short(value)) : "";
  const text = String(value ?? "");
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// The shortest digits that give a single-precision number back.
function short(value) {
  const digits = [6, 7, 8, 9].map((count) => Number(value.toPrecision(count)));
  return digits.find((number) => Math.fround(number) === value) ?? value;
}
