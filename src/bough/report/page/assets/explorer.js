// The explorer of a trace: the tree, what is known of a node, and the heat maps, each following the others.

function explorers(traces) {
  const place = h("div", {});
  const names = traces.map((trace, k) => [String(k), `${trace.method} (${plural(trace.nodes.parent.length, "node")})`]);
  const open = (k) => place.replaceChildren(explorer(traces[k]));
  open(0);
  return h(
    "section",
    { class: "card", id: "explorer" },
    h(
      "div",
      { class: "row" },
      h("h2", {}, "The branch-and-bound tree"),
      traces.length > 1 ? choice("trace", names, "0", (k) => open(Number(k)), "trace") : null,
    ),
    place,
  );
}

function explorer(trace) {
  if (!trace.nodes.parent.length)
    return h(
      "p",
      { class: "empty" },
      "The trace has no nodes: the search ended before its root was bounded, or --trace-limit was 0.",
    );
  const tree = new Tree(trace),
    details = h("div", { class: "details", "aria-live": "polite" }),
    legend = h("p", { class: "key" });
  const subtree = h("input", { type: "checkbox", id: "subtree", onchange: () => select(shown.selected) });
  const heat = new HeatMaps(tree, (chosen) => find(chosen));
  const shown = new TreeView(tree, (k) => select(k));
  const words = h("span", { class: "muted", id: "tree-words" });
  function say() {
    const beyond = trace.stopped ? "; the search went on beyond them" : "";
    words.textContent = `${number(tree.shown)} of ${plural(tree.count, "node")} shown${beyond}`;
    legend.replaceChildren(
      ...shown
        .legend()
        .map(([colour, text]) =>
          h(
            "span",
            {},
            s(
              "svg",
              { width: 10, height: 10, "aria-hidden": "true" },
              s("circle", { cx: 5, cy: 5, r: 5, fill: colour }),
            ),
            ` ${text}`,
          ),
        ),
    );
  }
  function select(k) {
    details.replaceChildren(...nodeDetails(tree, k, (to) => shown.select(to, true)));
    heat.within(subtree.checked ? k : null);
    heat.picked = k === null ? heat.picked : (tree.choices(k)?.[0] ?? null);
    heat.mark(
      k === null
        ? []
        : tree
            .path(k)
            .filter((at) => tree.nodes.parent[at] >= 0)
            .flatMap((at) => [tree.nodes.split[at]].flat()),
    );
    say();
    shown.later();
  }
  function find(chosen) {
    shown.found = new Set(
      Array.from({ length: tree.count }, (_, k) => k)
        .filter((k) => tree.choices(k)?.includes(chosen))
        .slice(0, 500),
    );
    heat.picked = chosen;
    if (shown.found.size) shown.select([...shown.found][0], true);
    else heat.draw();
  }
  const button = (text, title, act) =>
    h(
      "button",
      {
        class: "quiet",
        title,
        onclick: () => {
          act();
          say();
        },
      },
      text,
    );
  const anew = (act) => () => {
    act();
    shown.fit();
  };
  const deepest = tree.rows.length,
    depth = h("input", {
      type: "number",
      min: 1,
      max: deepest,
      value: Math.max(1, tree.rows.length - 1),
      id: "fold-depth",
      "aria-label": "depth",
    });
  window.boughReport = { tree, view: shown, heat }; // for tests, and for the curious
  select(null);
  return h(
    "div",
    {},
    h(
      "div",
      { class: "choices" },
      choice(
        "colour by",
        Object.entries(COLOURINGS),
        "end",
        (name) => {
          shown.colouring = name;
          shown.later();
          say();
        },
        "colouring",
      ),
      button(
        "expand all",
        "show every node",
        anew(() => tree.expandAll()),
      ),
      button(
        "fold",
        "fold below a depth",
        anew(() => tree.foldBelow(Number(depth.value))),
      ),
      h("label", { class: "choice" }, h("span", {}, "below depth"), depth),
      h(
        "span",
        { class: "tools" },
        button("+", "zoom in", () => shown.zoom(1.5)),
        button("−", "zoom out", () => shown.zoom(1 / 1.5)),
        button("whole", "fit into the window", () => shown.fit()),
      ),
      words,
    ),
    h(
      "div",
      { class: "explorer" },
      h(
        "div",
        { class: "canvas" },
        shown.canvas,
        legend,
        h(
          "p",
          { class: "muted" },
          "Wheel zooms (with Shift: only across), drag moves, click selects, double-click folds. A fan is a folded ",
          "branch, orange while something in it is open. The left child is blocked (or the lower half), the right one ",
          "passing.",
        ),
      ),
      h(
        "div",
        { class: "side" },
        details,
        h(
          "div",
          { class: "row" },
          h("h3", {}, "Where the splits lie"),
          h("label", { class: "check" }, subtree, " below the node only"),
        ),
        heat.element,
      ),
    ),
  );
}

/** What is known of a node, as a list. */
function nodeDetails(tree, k, go) {
  if (k === null)
    return [
      h("h3", {}, "No node selected"),
      h("p", { class: "muted" }, "Click a node, or press an arrow key in the tree."),
    ];
  const { nodes } = tree,
    parent = nodes.parent[k],
    link = (to) => h("button", { class: "link", onclick: () => go(to) }, `node ${number(to)}`);
  const made =
    parent < 0
      ? [`root of clause ${nodes.clause[k]}`]
      : [nodes.split[k]].flat().map((choice, level) => `${tree.say(choice)}: ${tree.half(k)[level]}`);
  const rows = [
    ["depth", number(nodes.depth[k])],
    ["made by", made.join("; ")],
    parent < 0 ? null : ["parent", link(parent)],
    ["bound", boundText(tree, k)],
    ["ended", ENDS[tree.end(k)]],
  ];
  if (tree.many[k])
    rows.push(
      [
        "split at",
        tree
          .choices(k)
          .map((choice) => tree.say(choice))
          .join("; "),
      ],
      ["chosen by", tree.decider(k) === "r" ? `the rule (${tree.trace.rule})` : DECIDERS[tree.decider(k)]],
      ["gain m", number(tree.gain(k), 4)],
      [
        "children",
        h(
          "span",
          {},
          tree.children(k).flatMap((child, i) => [i ? ", " : "", link(child)]),
        ),
      ],
      ["nodes below", number(tree.below[k])],
    );
  return [
    h("h3", {}, `Node ${number(k)}`),
    h(
      "dl",
      {},
      rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  ];
}
