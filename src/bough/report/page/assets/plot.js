// A plot in SVG: lines and points over linear or logarithmic axes. Drag to zoom, hover to read, click to open.

const SCALES = {
  linear: { to: (v) => v, from: (t) => t },
  log: { to: (v) => Math.log10(Math.max(v, 1e-3)), from: (t) => 10 ** t },
  log1p: { to: (v) => Math.log10(1 + Math.max(0, v)), from: (t) => 10 ** t - 1 }, // counts, which may be 0
};
let plots = 0;

class Plot {
  /** axes: {label, scale, low, high}; series: {name, colour, dash, line, points: [{x, y, mark, hollow, lines, href}]};
   *  rules: [{x1, y1, x2, y2}], drawn behind. */
  constructor({ title, x, y, series, rules = [], height = 330, id = null, legend = false }) {
    Object.assign(this, { x, y, series, rules, height, width: 560, clip: `clip${plots++}` });
    this.home = { x: this.range("x"), y: this.range("y") };
    this.now = { x: [...this.home.x], y: [...this.home.y] };
    this.svg = s("svg", { role: "img", "aria-label": title, tabindex: 0, class: "plot" });
    const button = (text, name, act) =>
      h("button", { class: "quiet", title: name, "aria-label": `${name}: ${title}`, onclick: act }, text);
    this.element = h(
      "figure",
      { id },
      h(
        "figcaption",
        {},
        h("span", {}, title),
        h(
          "span",
          { class: "tools" },
          button("+", "zoom in", () => this.zoom(0.6)),
          button("−", "zoom out", () => this.zoom(1 / 0.6)),
          button("whole", "show all", () => this.reset()),
        ),
      ),
      this.svg,
      legend ? this.legend() : null,
    );
    this.listen();
    this.draw();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  resize() {
    const width = Math.round(this.element.clientWidth);
    if (width < 200 || width === this.width) return;
    this.width = width;
    this.draw();
  }

  legend() {
    return h(
      "p",
      { class: "key" },
      this.series.map((one) =>
        h(
          "span",
          {},
          s(
            "svg",
            { width: 26, height: 10, "aria-hidden": "true" },
            s("line", {
              x1: 0,
              x2: 26,
              y1: 5,
              y2: 5,
              stroke: one.colour,
              "stroke-width": 3,
              "stroke-dasharray": one.dash || null,
            }),
          ),
          ` ${one.name}`,
        ),
      ),
    );
  }

  range(axis) {
    const to = SCALES[this[axis].scale].to;
    const values = this.series.flatMap((one) => one.points.map((point) => to(point[axis])));
    if (this[axis].low !== undefined) values.push(to(this[axis].low));
    if (this[axis].high !== undefined) values.push(to(this[axis].high));
    let low = values.length ? Infinity : 0,
      high = values.length ? -Infinity : 1;
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    const pad = (high - low || 1) * 0.04;
    return [low - pad, high + pad];
  }

  get inner() {
    return { left: 66, top: 10, right: this.width - 14, bottom: this.height - 42 };
  }

  px(v) {
    const { left, right } = this.inner,
      [low, high] = this.now.x;
    return left + ((SCALES[this.x.scale].to(v) - low) / (high - low)) * (right - left);
  }

  py(v) {
    const { top, bottom } = this.inner,
      [low, high] = this.now.y;
    return bottom - ((SCALES[this.y.scale].to(v) - low) / (high - low)) * (bottom - top);
  }

  draw() {
    const { left, top, right, bottom } = this.inner;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const clip = s(
      "clipPath",
      { id: this.clip },
      s("rect", { x: left, y: top, width: right - left, height: bottom - top }),
    );
    const inside = s(
      "g",
      { "clip-path": `url(#${this.clip})` },
      this.rules.map((rule) =>
        s("line", {
          class: "rule",
          x1: this.px(rule.x1),
          y1: this.py(rule.y1),
          x2: this.px(rule.x2),
          y2: this.py(rule.y2),
        }),
      ),
      this.series.map((one) => this.curve(one)),
      this.series.map((one) => this.marks(one)),
    );
    this.brush = s("rect", { class: "brush", visibility: "hidden" });
    this.halo = s("circle", { class: "halo", r: 7, visibility: "hidden" });
    this.svg.replaceChildren(s("defs", {}, clip), ...this.axis("x"), ...this.axis("y"), inside, this.halo, this.brush);
    this.places = null;
  }

  axis(which) {
    const { left, top, right, bottom } = this.inner,
      parts = [];
    for (const value of ticks(this.now[which], this[which].scale, which === "x" ? this.width / 110 : 6)) {
      const at = which === "x" ? this.px(value) : this.py(value);
      const ends = which === "x" ? { x1: at, x2: at, y1: top, y2: bottom } : { x1: left, x2: right, y1: at, y2: at };
      const place =
        which === "x"
          ? { x: at, y: bottom + 16, "text-anchor": "middle" }
          : { x: left - 7, y: at + 4, "text-anchor": "end" };
      parts.push(s("line", { class: "grid", ...ends }), s("text", { class: "tick", ...place }, tickText(value)));
    }
    const middle = (top + bottom) / 2;
    parts.push(
      which === "x"
        ? s(
            "text",
            { class: "label", x: (left + right) / 2, y: this.height - 6, "text-anchor": "middle" },
            this.x.label,
          )
        : s(
            "text",
            { class: "label", x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` },
            this.y.label,
          ),
    );
    return parts;
  }

  curve(one) {
    if (!one.line || !one.points.length) return null;
    let path = "";
    one.points.forEach((point, k) => {
      const x = this.px(point.x).toFixed(1),
        y = this.py(point.y).toFixed(1);
      path += !k ? `M${x},${y}` : one.line === "step" ? `H${x}V${y}` : `L${x},${y}`;
    });
    if (one.until !== undefined) path += `H${this.px(one.until).toFixed(1)}`;
    return s("path", { class: "curve", d: path, stroke: one.colour, "stroke-dasharray": one.dash || null });
  }

  marks(one) {
    if (one.line && one.points.length > 400) return null; // the line says it all
    return one.points
      .filter((point) => point.mark !== "none")
      .map((point) => {
        const x = this.px(point.x),
          y = this.py(point.y),
          look = { fill: point.hollow ? "none" : one.colour, stroke: one.colour, class: "mark" };
        if (point.mark === "triangle") return s("path", { d: `M${x},${y - 5}l4.6,8h-9.2z`, ...look });
        if (point.mark === "square") return s("rect", { x: x - 3.6, y: y - 3.6, width: 7.2, height: 7.2, ...look });
        return s("circle", { cx: x, cy: y, r: one.line ? 2.4 : 4, ...look });
      });
  }

  // Reading and zooming

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      from = this.at(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => (from ? this.stretch(from, this.at(event)) : this.read(event)));
    this.svg.addEventListener("pointerleave", () => {
      tip.hide();
      this.halo.setAttribute("visibility", "hidden");
    });
    this.svg.addEventListener("pointerup", (event) => {
      const to = this.at(event),
        began = from;
      from = null;
      this.brush.setAttribute("visibility", "hidden");
      if (!began) return;
      if (Math.hypot(to.x - began.x, to.y - began.y) > 8) this.cut(began, to);
      else if (this.nearest(to)?.point.href) location.hash = this.nearest(to).point.href;
    });
    this.svg.addEventListener("dblclick", () => this.reset());
    this.svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
      },
      { passive: false },
    );
    this.svg.addEventListener("keydown", (event) => {
      const act = { "+": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.reset() }[event.key];
      if (act) act();
    });
  }

  at(event) {
    const box = this.svg.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) / box.width) * this.width,
      y: ((event.clientY - box.top) / box.height) * this.height,
    };
  }

  stretch(from, to) {
    const shape = {
      x: Math.min(from.x, to.x),
      y: Math.min(from.y, to.y),
      width: Math.abs(to.x - from.x),
      height: Math.abs(to.y - from.y),
    };
    for (const [name, value] of Object.entries({ ...shape, visibility: "visible" }))
      this.brush.setAttribute(name, value);
  }

  cut(from, to) {
    const { left, top, right, bottom } = this.inner,
      { x, y } = this.now;
    const across = [from.x, to.x]
      .sort((a, b) => a - b)
      .map((p) => x[0] + clamp((p - left) / (right - left), 0, 1) * (x[1] - x[0]));
    const along = [from.y, to.y]
      .sort((a, b) => b - a)
      .map((p) => y[0] + clamp((bottom - p) / (bottom - top), 0, 1) * (y[1] - y[0]));
    if (across[1] - across[0] > 1e-9 && along[1] - along[0] > 1e-9) this.now = { x: across, y: along };
    this.draw();
  }

  zoom(factor, around = null) {
    const { left, top, right, bottom } = this.inner;
    const share = around
      ? { x: (around.x - left) / (right - left), y: (bottom - around.y) / (bottom - top) }
      : { x: 0.5, y: 0.5 };
    for (const axis of ["x", "y"]) {
      const [low, high] = this.now[axis],
        middle = low + clamp(share[axis], 0, 1) * (high - low);
      this.now[axis] = [middle + (low - middle) * factor, middle + (high - middle) * factor];
    }
    this.draw();
  }

  reset() {
    this.now = { x: [...this.home.x], y: [...this.home.y] };
    this.draw();
  }

  nearest(at, within = 18) {
    this.places ??= this.series.flatMap((one) =>
      one.points
        .filter((point) => point.lines)
        .map((point) => ({ one, point, x: this.px(point.x), y: this.py(point.y) })),
    );
    let best = null,
      least = within;
    for (const place of this.places) {
      const far = Math.hypot(place.x - at.x, place.y - at.y);
      if (far < least) [best, least] = [place, far];
    }
    return best;
  }

  read(event) {
    const found = this.nearest(this.at(event));
    this.halo.setAttribute("visibility", found ? "visible" : "hidden");
    this.svg.classList.toggle("pointing", Boolean(found?.point.href));
    if (!found) return tip.hide();
    this.halo.setAttribute("cx", found.x);
    this.halo.setAttribute("cy", found.y);
    this.halo.setAttribute("stroke", found.one.colour);
    tip.show(event, ...found.point.lines);
  }
}

/** Round numbers between two ends that are given on the scale. */
function ticks([low, high], scale, most) {
  const { to, from } = SCALES[scale];
  if (scale !== "linear" && high - low > 1.2) {
    const every = Math.max(1, Math.ceil((high - low) / most)),
      found = scale === "log1p" && low <= 0 ? [0] : [];
    for (let power = Math.ceil(low); power <= high; power += every)
      found.push(scale === "log1p" && power === 0 ? 1 : 10 ** power);
    return found.filter((value) => to(value) >= low && to(value) <= high);
  }
  const [first, last] = [from(low), from(high)],
    step = niceStep((last - first) / most),
    found = [];
  for (let k = Math.ceil(first / step); k * step <= last + 1e-9 * step && found.length < 50; k++) found.push(k * step);
  return found;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => step >= rough) ?? power;
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`.replace("-", "−");
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`.replace("-", "−");
  return String(+value.toPrecision(3)).replace("-", "−");
}
