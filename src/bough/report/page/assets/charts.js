// The two charts of the overview: solved against what it took, and two methods against each other.

function runLines(run) {
  return [
    DATA.instances[run.instance].name,
    `${run.method}: ${run.outcome}`,
    `${seconds(run.seconds)}, ${plural(run.branches ?? 0, "branch", "branches")}, ${plural(run.bounds ?? 0, "bound")}`,
  ];
}

/** How many instances each method has solved, against what each took. */
function cactus(now, refresh) {
  const key = overview.measure,
    { unit, name } = MEASURES[key];
  const total = new Set(now.runs.map((run) => run.instance)).size;
  const series = now.methods.map((method) => {
    const runs = now.runs
      .filter((run) => run.method === method && run.solved && run[key] !== null)
      .sort((a, b) => a[key] - b[key]);
    const points = runs.map((run, k) => ({
      x: run[key],
      y: k + 1,
      href: `instance/${run.instance}`,
      lines: [...runLines(run), `${k + 1} of ${total} solved (${Math.round((100 * (k + 1)) / total)}%)`],
    }));
    if (points.length) points.unshift({ x: points[0].x, y: 0, mark: "none" });
    return { name: method, ...LOOKS.get(method), line: "step", points };
  });
  const most = Math.max(
    ...now.runs.map((run) =>
      key === "seconds" ? (run.timeout ?? run.seconds ?? 0) : run.solved ? (run[key] ?? 0) : 0,
    ),
    1e-3,
  );
  series.forEach((one) => {
    one.until = most;
  });
  const plot = new Plot({
    id: "cactus",
    title: `Solved against ${name}`,
    x: { label: unit, scale: MEASURES[key].scale, high: most },
    height: 352,
    y: { label: `solved, of ${total}`, scale: "linear", low: 0, high: total },
    series,
  });
  const tabs = h(
    "div",
    { class: "tabs", role: "group", "aria-label": "against" },
    Object.entries(MEASURES).map(([one, { name: text }]) =>
      h(
        "button",
        {
          "aria-pressed": String(one === key),
          "data-measure": one,
          onclick: () => {
            overview.measure = one;
            refresh();
          },
        },
        text,
      ),
    ),
  );
  return h("div", { class: "card" }, tabs, plot.element);
}

/** Two methods against each other, an instance each. */
function scatter(now, refresh) {
  const [a, b] = overview.pair,
    key = overview.pairMeasure;
  if (METHODS.length < 2)
    return h("div", { class: "card empty" }, "One method only: there is none to compare it with.");
  const of = (method) =>
    new Map(
      now.runs.filter((run) => run.method === method && value(run, key) !== null).map((run) => [run.instance, run]),
    );
  const [left, right] = [of(a), of(b)];
  const common = [...left.keys()].filter((k) => right.has(k));
  const points = common.map((k) => pairPoint(left.get(k), right.get(k), key));
  const all = points.flatMap((point) => [point.x, point.y]),
    low = Math.min(...all, Infinity),
    high = Math.max(...all, -Infinity);
  const scale = MEASURES[key].scale,
    axis = { scale, ...(points.length ? { low, high } : {}) };
  const floor = scale === "log" ? 1e-3 : 0;
  const rules = [{ x1: floor, y1: floor, x2: 1e9, y2: 1e9 }];
  const colours = { verified: PALETTE[0], falsified: PALETTE[1], other: PALETTE[6] };
  const series = Object.entries(colours).map(([kind, colour]) => ({
    name: kind,
    colour,
    points: points.filter((point) => point.kind === kind),
  }));
  const pick = (k, label, id) =>
    choice(
      label,
      METHODS,
      overview.pair[k],
      (name) => {
        overview.pair[k] = name;
        refresh();
      },
      id,
    );
  const measure = choice(
    "by",
    Object.entries(MEASURES).map(([one, { name }]) => [one, name]),
    key,
    (one) => {
      overview.pairMeasure = one;
      refresh();
    },
  );
  const body = common.length
    ? new Plot({
        id: "scatter",
        title: `${b} against ${a}, ${plural(common.length, "instance")}`,
        x: { label: `${a}: ${MEASURES[key].unit}`, ...axis },
        y: { label: `${b}: ${MEASURES[key].unit}`, ...axis },
        series,
        rules,
      }).element
    : h("p", { class: "empty" }, `${a} and ${b} have no instance in common here.`);
  return h(
    "div",
    { class: "card" },
    h("div", { class: "choices" }, pick(0, "across", "pair-a"), pick(1, "up", "pair-b"), measure),
    body,
    common.length
      ? h(
          "p",
          { class: "key" },
          key2("verified", "circle", PALETTE[0]),
          key2("falsified", "triangle", PALETTE[1]),
          key2("not solved by both; what is not solved stands at its limit", "square", PALETTE[6]),
        )
      : null,
  );
}

/** In a scatter of seconds, what is not solved stands at the limit. */
function value(run, key) {
  return key === "seconds" ? atLimit(run) : run[key];
}

function pairPoint(one, other, key) {
  const kind = one.solved && other.solved ? one.verdict : "other";
  const mark = { verified: "circle", falsified: "triangle", other: "square" }[kind];
  const lines = [
    DATA.instances[one.instance].name,
    ...[one, other].map((run) => `${run.method}: ${run.outcome}, ${number(run[key])} ${MEASURES[key].unit}`),
  ];
  return {
    x: value(one, key),
    y: value(other, key),
    kind,
    mark,
    hollow: kind === "other",
    href: `instance/${one.instance}`,
    lines,
  };
}

function key2(text, mark, colour) {
  const shapes = {
    circle: s("circle", { cx: 6, cy: 6, r: 4, fill: colour }),
    triangle: s("path", { d: "M6,1l4.6,8h-9.2z", fill: colour }),
    square: s("rect", { x: 2.4, y: 2.4, width: 7.2, height: 7.2, fill: "none", stroke: colour }),
  };
  return h("span", {}, s("svg", { width: 12, height: 12, "aria-hidden": "true" }, shapes[mark]), ` ${text}`);
}
