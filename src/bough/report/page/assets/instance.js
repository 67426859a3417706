// The page of one instance: its runs, the counterexample, and of every trace the bound over time and the tree.

function drawInstance(page, id) {
  const instance = DATA.instances[id];
  if (!instance) return fill(page, h("p", {}, "There is no such instance. "), h("a", { href: "#" }, "Back to all"));
  const step = (to, text) => (DATA.instances[to] ? h("a", { href: `#instance/${to}` }, text) : null);
  const points = DATA.points.filter((point) => point.instance === id).slice(0, 1);
  fill(
    page,
    h(
      "nav",
      { class: "crumbs" },
      h("a", { href: "#" }, "← all instances"),
      step(id - 1, "previous"),
      step(id + 1, "next"),
    ),
    h(
      "header",
      {},
      h("h1", {}, instance.name),
      h("p", { class: "headline" }, instanceSentence(instance)),
      h(
        "p",
        { class: "muted" },
        `network ${instance.network} · property ${instance.property} · ${instance.difficulty}`,
      ),
    ),
    h("section", {}, instanceRuns(id).element),
    points.map((point) => counterexample(point)),
    instance.traces.length
      ? h("section", { class: "plots one" }, h("div", { class: "card" }, boundPlot(instance.traces)))
      : h(
          "p",
          { class: "empty" },
          "No trace of this instance: run `bough bench … --trace DIR` (or `bough verify … --trace FILE`) and give ",
          "that to `bough report --trace` to see its bound over time and its tree.",
        ),
    instance.traces.length ? explorers(instance.traces) : null,
  );
}

function instanceSentence(instance) {
  const solved = RUNS_OF[instance.id].filter((run) => run.solved).sort((a, b) => a.seconds - b.seconds);
  if (instance.verdict === "contradictory") return "Methods contradict each other here: one of them is wrong.";
  if (!solved.length)
    return `Not decided by ${RUNS_OF[instance.id].length === 1 ? RUNS_OF[instance.id][0].method : "any method"}.`;
  const fastest = solved[0];
  const word = fastest.verdict === "verified" ? "Verified" : "Falsified";
  const took = `${seconds(fastest.seconds)} with ${plural(fastest.branches ?? 0, "branch", "branches")}`;
  return `${word}, by ${fastest.method} in ${took}${solved.length > 1 ? `, the fastest of ${solved.length}` : ""}.`;
}

function instanceRuns(id) {
  const table = new Table(
    [
      ...runColumns(),
      ...(RUNS_OF[id].some((run) => run.learnt || run.backup)
        ? [figure("learnt", "learnt decisions"), figure("backup", "by backup")]
        : []),
      {
        key: "reason",
        name: "why",
        left: true,
        wide: true,
        value: (run) => run.error ?? run.reason ?? "",
        text: (run) => run.error ?? run.reason ?? "",
      },
    ],
    { sort: "seconds", caption: "Runs of this instance", id: "instance-runs" },
  );
  table.fill(RUNS_OF[id]);
  return table;
}

/** The global bound of every trace, step by step. */
function boundPlot(traces) {
  const series = traces.map((trace, k) => {
    const look = LOOKS.get(trace.method),
      { steps } = trace;
    const points = steps.seconds
      .map((x, i) => ({
        x,
        y: steps.lower[i],
        lines: [
          trace.method,
          `${seconds(x)}: bound ${number(steps.lower[i], 4)}`,
          `${number(steps.open[i])} open, ${number(steps.branches[i])} branches, ${number(steps.bounds[i])} bounds`,
        ],
      }))
      .filter((point) => point.y !== null);
    const before = traces.slice(0, k).filter((other) => other.method === trace.method).length; // the same method again
    return {
      name: trace.method,
      colour: look.colour,
      dash: before ? DASHES[before % DASHES.length] : look.dash,
      line: "step",
      points,
    };
  });
  if (!series.some((one) => one.points.length)) {
    return h("p", { class: "muted" }, "No bound over time: the search ended before its root was bounded.");
  }
  return new Plot({
    id: "bound",
    title: "Proved lower bound over time",
    height: 260,
    legend: traces.length > 1,
    x: { label: "seconds", scale: "linear", low: 0 },
    y: { label: "lower bound", scale: "linear", high: 0 },
    series,
    rules: [{ x1: -1e6, y1: 0, x2: 1e6, y2: 0 }],
  }).element;
}
