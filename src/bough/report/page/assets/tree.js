// The branch-and-bound tree of a trace: who is whose child, what is folded away, where each node is drawn.
//
// Nodes are numbered as the search made them, so a parent's number is below its children's, and the children of one
// parent follow each other. Several roots (one per clause) hang from a trunk, which is no node of the search.

const ENDS = {
  split: "split further",
  c: "closed by its bound",
  x: "infeasible",
  o: "open",
  s: "stuck: cannot be split",
};
const DECIDERS = { r: "the rule", b: "the backup rule", n: "nobody: the rule's choice could not be split", "-": "" };

class Tree {
  constructor(trace) {
    this.trace = trace;
    this.nodes = trace.nodes;
    this.count = this.nodes.parent.length;
    this.roots = this.nodes.parent.filter((parent) => parent < 0).length;
    this.first = new Int32Array(this.count).fill(-1); // number of the first child
    this.many = new Int32Array(this.count); // children
    this.below = new Int32Array(this.count); // all nodes further down
    this.folded = new Uint8Array(this.count);
    for (let k = this.count - 1; k >= 0; k--) {
      const parent = this.nodes.parent[k];
      if (parent < 0) continue;
      this.first[parent] = k; // from the last to the first: the first one stays
      this.many[parent] += 1;
      this.below[parent] += 1 + this.below[k];
    }
    this.x = new Float32Array(this.count);
    this.deepest = this.nodes.depth.reduce((a, b) => Math.max(a, b), 0);
    this.ends = { split: 0, c: 0, x: 0, o: 0, s: 0 };
    this.unfinished = new Uint8Array(this.count); // whether a leaf at or below a node is not closed
    for (let k = this.count - 1; k >= 0; k--) {
      const end = this.end(k),
        parent = this.nodes.parent[k];
      this.ends[end] += 1;
      if (end === "o" || end === "s") this.unfinished[k] = 1;
      if (parent >= 0) this.unfinished[parent] |= this.unfinished[k];
    }
    this.foldForOverview();
  }

  end(k) {
    return this.many[k] ? "split" : this.nodes.end[k];
  }

  /** What a node was split at, as its children tell; null for a leaf. */
  choices(k) {
    return this.many[k] ? [this.nodes.split[this.first[k]]].flat() : null;
  }

  gain(k) {
    return this.many[k] ? this.nodes.gain[this.first[k]] : null;
  }

  decider(k) {
    return this.many[k] ? this.nodes.by[this.first[k]] : "-";
  }

  children(k) {
    return Array.from({ length: this.many[k] }, (_, i) => this.first[k] + i);
  }

  path(k) {
    const up = [];
    for (let at = k; at >= 0; at = this.nodes.parent[at]) up.push(at);
    return up;
  }

  // Folding

  /** A large tree starts with its largest branches open, as many as can be read. */
  foldForOverview(leaves = 56) {
    if (this.count < 6 * leaves) return this.expandAll();
    this.folded.fill(1);
    let open = Array.from({ length: this.roots }, (_, k) => k);
    while (open.length < leaves) {
      const largest = open.reduce((a, b) => (this.below[b] > this.below[a] ? b : a));
      if (!this.many[largest]) break;
      this.folded[largest] = 0;
      open = open.filter((k) => k !== largest).concat(this.children(largest));
    }
    this.layout();
  }

  foldBelow(depth) {
    for (let k = 0; k < this.count; k++) this.folded[k] = this.many[k] && this.nodes.depth[k] >= depth ? 1 : 0;
    this.layout();
  }

  expandAll() {
    this.folded.fill(0);
    this.layout();
  }

  toggle(k) {
    if (!this.many[k]) return;
    this.folded[k] = this.folded[k] ? 0 : 1;
    this.layout();
  }

  /** Unfold what hides a node. */
  reveal(k) {
    const hidden = this.path(k)
      .slice(1)
      .filter((at) => this.folded[at]);
    hidden.forEach((at) => {
      this.folded[at] = 0;
    });
    if (hidden.length) this.layout();
  }

  /** A column for every leaf that is shown, parents above the middle of their children: one pass down, one up. */
  layout() {
    const order = [],
      stack = [];
    for (let root = this.roots - 1; root >= 0; root--) stack.push(root);
    this.rows = [];
    this.leaves = 0;
    while (stack.length) {
      const k = stack.pop();
      order.push(k);
      (this.rows[this.nodes.depth[k]] ??= []).push(k);
      if (!this.many[k] || this.folded[k]) this.x[k] = this.leaves++;
      else for (let i = this.many[k] - 1; i >= 0; i--) stack.push(this.first[k] + i);
    }
    for (let at = order.length - 1; at >= 0; at--) {
      const k = order[at];
      if (this.many[k] && !this.folded[k])
        this.x[k] = (this.x[this.first[k]] + this.x[this.first[k] + this.many[k] - 1]) / 2;
    }
    this.rows = Array.from(this.rows, (row) => Int32Array.from(row ?? []));
    this.shown = order.length;
  }

  // Words

  /** Where a choice lies: {layer, place} of a ReLU, or an input. */
  where(choice) {
    const { layers, neurons, input_shape: shape } = this.trace;
    if (choice >= neurons)
      return { layer: layers.length, index: choice - neurons, name: "input", at: unravel(choice - neurons, shape) };
    let layer = layers.length - 1;
    while (layers[layer].first > choice) layer--;
    return {
      layer,
      index: choice - layers[layer].first,
      name: `layer ${layer + 1} (${layers[layer].name})`,
      at: unravel(choice - layers[layer].first, layers[layer].shape),
    };
  }

  /** The same in words. */
  say(choice) {
    const { name, at } = this.where(choice);
    const axes =
      at.length === 3
        ? ["channel", "row", "column"]
        : at.length === 1
          ? [name === "input" ? "number" : "neuron"]
          : at.map((_, k) => `axis ${k}`);
    return `${name}, ${at.map((value, k) => `${axes[k]} ${value}`).join(", ")}`;
  }

  /** How a node came to be: "ReLU blocked", "upper half". */
  half(k) {
    const split = [this.nodes.split[k]].flat(),
      side = this.nodes.side[k];
    return split.map((choice, level) => {
      const second = (side >> (split.length - 1 - level)) & 1;
      return choice >= this.trace.neurons
        ? second
          ? "upper half"
          : "lower half"
        : second
          ? "passing (z ≥ 0)"
          : "blocked (z ≤ 0)";
    });
  }

  /** Splits at each choice, of the whole tree or of what is below a node. */
  splits(top = null) {
    const counts = new Map(),
      inside = new Uint8Array(this.count);
    for (let k = 0; k < this.count; k++) {
      inside[k] = top === null || k === top || (this.nodes.parent[k] >= 0 && inside[this.nodes.parent[k]]) ? 1 : 0;
      if (inside[k] && this.many[k])
        for (const choice of this.choices(k)) counts.set(choice, (counts.get(choice) ?? 0) + 1);
    }
    return counts;
  }
}

/** A flat number as places along the axes of a shape; axes of length 1 in front are left out. */
function unravel(index, shape) {
  const sizes = shape.length > 3 ? shape.slice(-3) : shape,
    places = [];
  for (let axis = sizes.length - 1; axis >= 0; axis--) {
    places.unshift(index % sizes[axis]);
    index = Math.floor(index / sizes[axis]);
  }
  return places;
}
