// The pictures of the overview, painted once, off the screen.
const HIDDEN = 255;
const HIDDEN_COLOUR = [128, 128, 128, 72];

// All pictures side by side at their own size: the only place where codes become colours.
function paintAtlas(header, thumbs, colours) {
  const { side } = header;
  const count = thumbs.length / side ** 2;
  const across = Math.ceil(Math.sqrt(count));
  const atlas = document.createElement("canvas");
  [atlas.width, atlas.height] = [across * side, Math.ceil(count / across) * side];
  const context = atlas.getContext("2d");
  const image = context.createImageData(atlas.width, atlas.height);
  const palette = new Uint8ClampedArray(4 * 256);
  for (let level = 0; level < HIDDEN; level += 1) palette.set([...shade(colours, level / (HIDDEN - 1)), 255], 4 * level);
  palette.set(HIDDEN_COLOUR, 4 * HIDDEN);
  const [inks, pixels] = [new Uint32Array(palette.buffer), new Uint32Array(image.data.buffer)];
  for (let head = 0, from = 0; head < count; head += 1) {
    const start = Math.floor(head / across) * side * atlas.width + (head % across) * side;
    for (let row = 0; row < side; row += 1) {
      for (let column = 0; column < side; column += 1, from += 1) {
        pixels[start + row * atlas.width + column] = inks[thumbs[from]];
      }
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas: atlas, at: (head) => [(head % across) * side, Math.floor(head / across) * side, side, side] };
}

// The pictures where they stand; `side` is how many pixels of the screen one has by itself.
function drawPictures(pen, plan, atlas, side) {
  pen.imageSmoothingEnabled = plan.size < side; // smaller: the mean of pixels; larger: as they are
  plan.slots.forEach((head, slot) => {
    if (head >= 0) pen.drawImage(atlas.canvas, ...atlas.at(head), ...corner(plan, slot), plan.size, plan.size);
  });
}
