// Where in the network the splits lie: a small map per layer, a cell per ReLU, channels side by side.

class HeatMaps {
  /** `onpick(choice)` is called when a cell is clicked. */
  constructor(tree, onpick) {
    Object.assign(this, { tree, onpick, marked: new Set(), picked: null });
    const { layers, neurons, input_shape: shape } = tree.trace;
    this.counts = tree.splits();
    const inputs = [...this.counts.keys()].some((choice) => choice >= neurons)
      ? [{ name: "input", shape, first: neurons }]
      : [];
    this.maps = [...layers, ...inputs].map(
      (layer, k) =>
        new HeatMap(this, layer, layer.name === "input" && k === layers.length ? "input" : `layer ${k + 1}`),
    );
    this.element = h(
      "div",
      { class: "heat" },
      this.maps.map((map) => map.element),
      this.counts.size ? ramp() : null,
    );
    darkness.addEventListener("change", () => this.draw());
    this.draw();
  }

  /** Count splits below this node only; null: of the whole tree. */
  within(node) {
    this.counts = this.tree.splits(node);
    this.draw();
  }

  /** Show where these choices are: the node's own first. */
  mark(choices) {
    this.marked = new Set(choices);
    this.draw();
  }

  draw() {
    const most = Math.max(1, ...this.counts.values());
    this.maps.forEach((map) => map.draw(most));
  }
}

class HeatMap {
  constructor(maps, layer, title) {
    Object.assign(this, { maps, layer });
    const sizes = layer.shape.length > 3 ? layer.shape.slice(-3) : layer.shape;
    this.size = sizes.reduce((a, b) => a * b, 1);
    [this.channels, this.height, this.width] =
      sizes.length === 3 ? sizes : sizes.length === 2 ? [1, ...sizes] : flatShape(this.size);
    const room = 348;
    this.cell = clamp(
      Math.floor(room / Math.max(this.width, Math.sqrt(this.channels * this.width * this.height) * 1.6)),
      2,
      16,
    );
    this.gap = this.channels > 1 ? 3 : 0;
    this.across = clamp(Math.floor((room + this.gap) / (this.width * this.cell + this.gap)), 1, this.channels);
    const down = Math.ceil(this.channels / this.across);
    this.canvas = h("canvas", { tabindex: -1, role: "img", "aria-label": `splits in ${title}` });
    this.pixels = [
      this.across * (this.width * this.cell + this.gap) - this.gap,
      down * (this.height * this.cell + this.gap) - this.gap,
    ];
    this.caption = h("figcaption", {});
    this.title = `${title}: ${layer.name === title ? "" : `${layer.name}, `}${sizes.join(" × ")}`;
    const empty = ![...maps.counts.keys()].some((choice) => choice >= layer.first && choice < layer.first + this.size);
    this.element = h("figure", {}, this.caption, empty ? null : this.canvas); // a layer without splits is a line
    this.canvas.addEventListener("pointermove", (event) => this.read(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const at = this.at(event);
      if (at !== null) this.maps.onpick(at);
    });
  }

  corner(index) {
    const plane = this.width * this.height,
      channel = Math.floor(index / plane),
      inside = index % plane;
    const x = (channel % this.across) * (this.width * this.cell + this.gap) + (inside % this.width) * this.cell;
    return [
      x,
      Math.floor(channel / this.across) * (this.height * this.cell + this.gap) +
        Math.floor(inside / this.width) * this.cell,
    ];
  }

  draw(most) {
    const ratio = devicePixelRatio || 1,
      [width, height] = this.pixels,
      cell = this.cell - (this.cell > 4 ? 1 : 0);
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = ink("cell");
    let used = 0,
      splits = 0;
    for (let k = 0; k < this.size; k++) pen.fillRect(...this.corner(k), cell, cell);
    for (const [choice, count] of this.maps.counts) {
      const index = choice - this.layer.first;
      if (index < 0 || index >= this.size) continue;
      used += 1;
      splits += count;
      pen.fillStyle = heatColour(count, most);
      pen.fillRect(...this.corner(index), cell, cell);
    }
    pen.lineWidth = 2;
    for (const choice of this.maps.marked) this.outline(pen, choice, ink("path"), cell);
    if (this.maps.picked !== null) this.outline(pen, this.maps.picked, ink("pick"), cell);
    this.caption.replaceChildren(
      h("b", {}, this.title),
      splits ? ` · ${plural(splits, "split")} at ${number(used)} of ${number(this.size)}` : ` · no splits`,
    );
  }

  outline(pen, choice, colour, cell) {
    const index = choice - this.layer.first;
    if (index < 0 || index >= this.size) return;
    const [x, y] = this.corner(index);
    pen.strokeStyle = colour;
    pen.strokeRect(x - 0.5, y - 0.5, cell + 1, cell + 1);
  }

  /** The choice under the pointer, or null. */
  at(event) {
    const pitch = [this.width * this.cell + this.gap, this.height * this.cell + this.gap];
    const column = Math.floor((event.offsetX % pitch[0]) / this.cell),
      row = Math.floor((event.offsetY % pitch[1]) / this.cell);
    const channel = Math.floor(event.offsetY / pitch[1]) * this.across + Math.floor(event.offsetX / pitch[0]);
    const index = (channel * this.height + row) * this.width + column;
    return column < this.width && row < this.height && channel < this.channels && index >= 0 && index < this.size
      ? this.layer.first + index
      : null;
  }

  read(event) {
    const choice = this.at(event);
    if (choice === null) return tip.hide();
    tip.show(
      event,
      this.maps.tree.say(choice),
      plural(this.maps.counts.get(choice) ?? 0, "split"),
      "click to find them in the tree",
    );
  }
}

/** Few splits are many more than none: the scale is logarithmic, and never as dark as an empty cell. */
function heatColour(count, most) {
  return viridis(0.15 + 0.85 * (most > 1 ? Math.log(count) / Math.log(most) : 1));
}

function ramp() {
  const steps = Array.from({ length: 24 }, (_, k) =>
    s("rect", { x: k * 5, width: 5, height: 8, fill: viridis(0.15 + (0.85 * k) / 23) }),
  );
  return h(
    "p",
    { class: "key" },
    "1 split ",
    s("svg", { width: 120, height: 8, "aria-hidden": "true" }, steps),
    " most",
  );
}

function flatShape(size) {
  const width = Math.min(size, Math.max(1, Math.ceil(Math.sqrt(size * 2.5))));
  return [1, Math.ceil(size / width), width];
}
