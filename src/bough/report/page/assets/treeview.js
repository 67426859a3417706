// The tree on a canvas: wheel to zoom, drag to move, click to select, double-click to fold. Only what is in sight is
// drawn, and of nodes that fall on the same pixel one, so that a frame costs about the same for any tree.

const COLOURINGS = {
  end: "how it ended",
  bound: "bound",
  gain: "gain m of its split",
  by: "who chose its split",
  layer: "layer of its split",
};

const TOGETHER = 128; // lines in one path: canvases are slow with long ones
const FINEST = 1; // nodes of a row that are closer than so many pixels are drawn once

class TreeView {
  /** `onselect(node)` is told which node is looked at, null for none. */
  constructor(tree, onselect) {
    Object.assign(this, {
      tree,
      onselect,
      colouring: "end",
      selected: null,
      found: new Set(),
      height: 0,
      width: 0,
      frames: [],
    });
    this.canvas = h("canvas", {
      class: "tree",
      tabindex: 0,
      role: "img",
      "aria-label":
        "branch-and-bound tree; arrow keys move from node to node, Enter folds, plus and minus zoom, 0 shows all",
    });
    this.canvas.style.height = `${clamp(110 + 72 * tree.deepest, 200, 600)}px`;
    this.pen = this.canvas.getContext("2d");
    this.worst = Math.min(0, ...this.sample());
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    darkness.addEventListener("change", () => this.later());
  }

  /** Bounds that set the scale of colours: of the first nodes, since the worst is among them. */
  sample() {
    return this.tree.nodes.bound.slice(0, 1000).filter((bound) => bound !== null);
  }

  resize() {
    const width = this.canvas.clientWidth,
      height = this.canvas.clientHeight;
    if (!width || (width === this.width && height === this.height && this.kx)) return;
    Object.assign(this, { width, height });
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    this.fit();
  }

  fit() {
    const { leaves, rows } = this.tree;
    this.kx = Math.min(90, (this.width - 48) / Math.max(1, leaves - 1));
    this.ky = clamp((this.height - 90) / Math.max(1, rows.length - 1), 4, 96);
    this.ox = (this.width - this.kx * (leaves - 1)) / 2;
    this.oy = 44;
    this.later();
  }

  later() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.draw();
    });
  }

  px(k) {
    return this.ox + this.tree.x[k] * this.kx;
  }
  py(k) {
    return this.oy + this.tree.nodes.depth[k] * this.ky;
  }

  // Drawing

  draw() {
    const began = performance.now(),
      { pen, tree } = this,
      ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    this.shownLast = this.inSight();
    this.links(this.shownLast);
    this.dots(this.shownLast);
    this.labels(this.shownLast);
    if (this.selected !== null) this.ring(this.selected, ink("pick"), 3);
    this.frames.push(performance.now() - began);
    if (this.frames.length > 200) this.frames.shift();
  }

  /** The nodes to draw, row by row; rows run from left to right. */
  inSight() {
    const found = [],
      { rows, nodes, x } = this.tree,
      margin = 20;
    for (let depth = 0; depth < rows.length; depth++) {
      const y = this.oy + depth * this.ky;
      if (y < -this.ky - margin || y > this.height + this.ky + margin) continue;
      let last = -Infinity;
      for (const k of rows[depth]) {
        const at = this.ox + x[k] * this.kx,
          parent = nodes.parent[k];
        const near = parent < 0 ? at : this.ox + x[parent] * this.kx;
        if (Math.max(at, near) < -margin) continue;
        if (Math.min(at, near) > this.width + margin) {
          if (at > this.width + margin) break;
          continue;
        }
        if (at - last < FINEST) continue;
        last = at;
        found.push(k);
      }
    }
    return found;
  }

  links(nodes) {
    const { pen, tree } = this,
      marked = new Set(this.selected === null ? [] : tree.path(this.selected));
    const stroke = (some, colour, width) => {
      Object.assign(pen, { strokeStyle: colour, lineWidth: width });
      pen.beginPath();
      for (let i = 0; i < some.length; i++) {
        const k = some[i],
          parent = tree.nodes.parent[k];
        if (parent < 0 && tree.roots === 1) continue;
        if (parent < 0) pen.moveTo(this.trunk(), this.oy - 26);
        else pen.moveTo(this.px(parent), this.py(parent));
        pen.lineTo(this.px(k), this.py(k));
        if (i % TOGETHER === TOGETHER - 1) {
          pen.stroke();
          pen.beginPath();
        }
      }
      pen.stroke();
    };
    stroke(nodes, ink("link"), this.kx > 6 ? 1.2 : 0.6);
    stroke([...marked], ink("pick"), 2);
  }

  trunk() {
    return this.ox + ((this.tree.leaves - 1) / 2) * this.kx;
  }

  get radius() {
    return clamp(Math.min(Math.max(this.kx * 0.42, Math.min(this.kx * 0.6, 2)), this.ky * 0.3), 1.2, 7);
  }

  dots(nodes) {
    const { pen, tree } = this,
      radius = this.radius,
      groups = new Map();
    for (const k of nodes) {
      const colour = this.colour(k);
      (groups.get(colour) ?? groups.set(colour, []).get(colour)).push(k);
    }
    for (const [colour, some] of groups) {
      pen.fillStyle = colour;
      if (radius < 2) {
        // too small for a shape
        for (const k of some)
          if (!tree.folded[k]) pen.fillRect(this.px(k) - radius, this.py(k) - radius, 2 * radius, 2 * radius);
      }
      pen.beginPath();
      const hollow = [];
      for (const k of some) {
        if (radius < 2 && !tree.folded[k]) continue;
        const x = this.px(k),
          y = this.py(k),
          end = tree.end(k),
          r = end === "split" ? radius * 0.75 : radius;
        if (tree.folded[k]) {
          const w = this.fan(k);
          pen.moveTo(x, y - 2);
          pen.lineTo(x + w, y + 2.6 * w);
          pen.lineTo(x - w, y + 2.6 * w);
          pen.closePath();
        } else if (end === "x") pen.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
        else {
          pen.moveTo(x + r, y);
          pen.arc(x, y, r, 0, 7);
          if (end === "o") hollow.push(k);
        }
      }
      pen.fill();
      pen.beginPath(); // what is open is hollow
      for (const k of hollow) {
        const r = radius - 1.6;
        if (r > 0) {
          pen.moveTo(this.px(k) + r, this.py(k));
          pen.arc(this.px(k), this.py(k), r, 0, 7);
        }
      }
      pen.fillStyle = ink("paper");
      pen.fill();
    }
    for (const k of this.found) if (this.visible(k)) this.ring(k, ink("path"), 2);
  }

  /** Half the width of the fan that stands for what is folded: the larger, the more. */
  fan(k) {
    return clamp(1.5 + 1.1 * Math.log2(1 + this.tree.below[k]), 2, Math.max(2, this.kx * 0.5));
  }

  /** Whether no ancestor is folded. */
  visible(k) {
    return !this.tree
      .path(k)
      .slice(1)
      .some((at) => this.tree.folded[at]);
  }

  ring(k, colour, width) {
    if (!this.visible(k)) return;
    this.pen.beginPath();
    this.pen.arc(this.px(k), this.py(k), this.radius + 3, 0, 7);
    Object.assign(this.pen, { strokeStyle: colour, lineWidth: width });
    this.pen.stroke();
  }

  labels(nodes) {
    const { pen, tree } = this;
    Object.assign(pen, { fillStyle: ink("muted"), textAlign: "center", font: "11px system-ui, sans-serif" });
    if (tree.roots > 1) pen.fillText(`${tree.roots} clauses`, this.trunk(), this.oy - 30);
    for (const k of nodes) {
      if (tree.folded[k] && this.kx > (tree.below[k] < 100 ? 16 : 24))
        pen.fillText(number(tree.below[k]), this.px(k), this.py(k) + 2.6 * this.fan(k) + 13);
      else if (tree.many[k] && this.kx > 40 && this.ky > 26) {
        const { layer, name, at } = tree.where(tree.choices(k)[0]);
        pen.fillText(
          `${name === "input" ? "x" : `L${layer + 1}`}[${at.join(",")}]`,
          this.px(k),
          this.py(k) - this.radius - 4,
        );
      }
    }
  }

  colour(k) {
    const { tree } = this,
      end = tree.end(k);
    if (this.colouring === "end" && tree.folded[k]) return ink(tree.unfinished[k] ? "open" : "closed");
    if (this.colouring === "end") return ink({ split: "split", c: "closed", x: "empty", o: "open", s: "stuck" }[end]);
    if (this.colouring === "bound") {
      const bound = tree.nodes.bound[k];
      return bound === null
        ? ink("empty")
        : viridis(this.worst < 0 ? Math.round(32 * (1 - Math.min(bound, 0) / this.worst)) / 32 : 1);
    }
    if (!tree.many[k]) return ink("cell");
    if (this.colouring === "gain")
      return tree.gain(k) === null ? ink("cell") : viridis(Math.round(32 * Math.sqrt(clamp(tree.gain(k), 0, 1))) / 32);
    if (this.colouring === "by") return { r: PALETTE[0], b: PALETTE[1], n: PALETTE[3] }[tree.decider(k)] ?? PALETTE[6];
    return PALETTE[tree.where(tree.choices(k)[0]).layer % PALETTE.length];
  }

  /** What the colours mean: [colour, words], or null for a scale from low to high. */
  legend() {
    const layers = this.tree.trace.layers;
    if (this.colouring === "end") {
      const names = {
        split: ["split", "split further"],
        c: ["closed", "closed by its bound"],
        x: ["empty", "infeasible"],
        o: ["open", this.tree.trace.stopped ? "open, or not followed" : "open"],
        s: ["stuck", "stuck"],
      };
      return Object.entries(names)
        .filter(([end]) => this.tree.ends[end])
        .map(([end, [name, text]]) => [ink(name), `${text} (${number(this.tree.ends[end])})`]);
    }
    if (this.colouring === "by")
      return [
        [PALETTE[0], `the rule (${this.tree.trace.rule})`],
        [PALETTE[1], "the backup rule"],
        [PALETTE[3], "neither"],
      ];
    if (this.colouring === "layer") return layers.map((layer, k) => [PALETTE[k % PALETTE.length], `layer ${k + 1}`]);
    return this.colouring === "bound"
      ? [
          [viridis(0), `${number(this.worst)}`],
          [viridis(0.5), number(this.worst / 2)],
          [viridis(1), "0 or above"],
        ]
      : [
          [viridis(0), "0"],
          [viridis(0.5), "0.25"],
          [viridis(1), "1: both children closed"],
        ];
  }

  // Moving about

  listen() {
    let from = null,
      moved = false;
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      from = [event.clientX, event.clientY, this.ox, this.oy];
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return this.read(event);
      const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
      moved ||= Math.hypot(dx, dy) > 4;
      if (moved) {
        Object.assign(this, { ox: from[2] + dx, oy: from[3] + dy });
        this.later();
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from && !moved) this.select(this.nearest(event));
      from = null;
    });
    canvas.addEventListener("pointerleave", () => tip.hide());
    canvas.addEventListener("dblclick", (event) => {
      const k = this.nearest(event);
      if (k !== null) this.fold(k);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(1.0015 ** -event.deltaY, event.offsetX, event.offsetY, event.shiftKey);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  zoom(factor, x = this.width / 2, y = this.height / 2, wide = false) {
    const kx = clamp(this.kx * factor, 1e-3, 220),
      ky = wide ? this.ky : clamp(this.ky * Math.sqrt(factor), 4, 90);
    this.ox = x - ((x - this.ox) * kx) / this.kx;
    this.oy = y - ((y - this.oy) * ky) / this.ky;
    Object.assign(this, { kx, ky });
    this.later();
  }

  key(event) {
    const { tree, selected: k } = this,
      parent = k === null ? -1 : tree.nodes.parent[k];
    const sideways = (step) => {
      const row = tree.rows[tree.nodes.depth[k]];
      this.select(row[row.indexOf(k) + step] ?? k, true);
    };
    const acts = {
      ArrowUp: () => this.select(parent >= 0 ? parent : k, true),
      ArrowLeft: () => sideways(-1),
      ArrowRight: () => sideways(1),
      ArrowDown: () => this.select(tree.many[k] && !tree.folded[k] ? tree.first[k] : k, true),
      Enter: () => this.fold(k),
      " ": () => this.fold(k),
      "+": () => this.zoom(1.4),
      "-": () => this.zoom(1 / 1.4),
      0: () => this.fit(),
      Escape: () => this.select(null),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    if (k === null && event.key.startsWith("Arrow")) this.select(0, true);
    else if (k !== null || !["Enter", " "].includes(event.key)) acts[event.key]();
  }

  select(k, follow = false) {
    this.selected = k;
    if (k !== null && follow) this.show(k);
    this.onselect(k);
    this.later();
  }

  /** Bring a node into sight. */
  show(k) {
    this.tree.reveal(k);
    const x = this.px(k),
      y = this.py(k),
      edge = 40;
    this.ox += clamp(x, edge, this.width - edge) - x;
    this.oy += clamp(y, edge, this.height - edge) - y;
    this.later();
  }

  fold(k) {
    const x = this.px(k),
      y = this.py(k);
    this.tree.toggle(k);
    this.ox += x - this.px(k); // the node stays under the pointer
    this.oy += y - this.py(k);
    this.select(k);
  }

  nearest(event, within = 14) {
    const { tree } = this,
      depth = Math.round((event.offsetY - this.oy) / this.ky),
      row = tree.rows[depth];
    if (!row?.length || Math.abs(this.oy + depth * this.ky - event.offsetY) > within) return null;
    let low = 0,
      high = row.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.px(row[middle]) < event.offsetX) low = middle + 1;
      else high = middle;
    }
    const near = [low - 1, low]
      .filter((at) => at >= 0)
      .map((at) => row[at])
      .sort((a, b) => Math.abs(this.px(a) - event.offsetX) - Math.abs(this.px(b) - event.offsetX))[0];
    return Math.abs(this.px(near) - event.offsetX) <= within ? near : null;
  }

  read(event) {
    const k = this.nearest(event);
    this.canvas.classList.toggle("pointing", k !== null);
    if (k === null) return tip.hide();
    const { tree } = this;
    const lines = [`node ${number(k)}, depth ${tree.nodes.depth[k]}`, `bound ${boundText(tree, k)}`, ENDS[tree.end(k)]];
    if (tree.many[k])
      lines.push(
        `split at ${tree
          .choices(k)
          .map((choice) => tree.say(choice))
          .join("; ")}`,
        `m = ${number(tree.gain(k))}, by ${DECIDERS[tree.decider(k)]}`,
      );
    if (tree.folded[k]) lines.push(`${number(tree.below[k])} nodes folded; double-click to open`);
    tip.show(event, ...lines);
  }
}

/** The bound of a node's parent; null at a root. */
function before(tree, k) {
  const parent = tree.nodes.parent[k];
  return parent < 0 ? null : tree.nodes.bound[parent];
}

/** The bound before and after; a root has nothing before. */
function boundText(tree, k) {
  const now = tree.nodes.end[k] === "x" ? "∞ (no point left)" : number(tree.nodes.bound[k], 4);
  return tree.nodes.parent[k] < 0 ? now : `${number(before(tree, k), 4)} → ${now}`;
}
