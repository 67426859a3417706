// The first page: what is to be seen, the summary, the plots, all runs.

const overview = { measure: "seconds", pair: METHODS.slice(0, 2), pairMeasure: "seconds" };

function drawOverview(page) {
  const parts = {
    headline: h("p", { class: "headline", "aria-live": "polite" }),
    plots: h("div", { class: "plots" }),
    summary: summaryTable(),
    runs: runsTable(),
    chips: h("div", { class: "chips", role: "group", "aria-label": "methods" }),
  };
  const refresh = () => drawParts(parts, refresh);
  fill(
    page,
    h(
      "header",
      {},
      h("p", { class: "brand" }, "bough report"),
      h(
        "h1",
        {},
        plural(DATA.instances.length, "instance"),
        ", ",
        plural(METHODS.length, "method"),
        ", ",
        plural(DATA.runs.length, "run"),
      ),
      parts.headline,
    ),
    warnings(),
    filterBar(parts, refresh),
    h("section", {}, parts.summary.element),
    h("section", { "aria-label": "plots" }, parts.plots),
    h("section", {}, parts.runs.element),
    footer(),
  );
  refresh();
}

function warnings() {
  if (!DATA.warnings.length && !DATA.notes.length) return null;
  return h(
    "aside",
    { class: "warnings" },
    DATA.warnings.map((line) => h("p", { class: "warning" }, h("b", {}, "! "), line)),
    DATA.notes.map((line) => h("p", {}, "note: ", line)),
  );
}

function footer() {
  const traced = plural(DATA.traces.length, "trace");
  return h(
    "footer",
    {},
    `Made by bough ${DATA.version} from ${plural(DATA.runs.length, "record")} and ${traced}; nothing is loaded from `,
    "elsewhere. Drag in a plot to zoom, double-click to see all again; click a point or a name to see its instance.",
  );
}

// Filters

function filterBar(parts, refresh) {
  const values = (key) => [...new Set(DATA.instances.map((one) => one[key]))].sort();
  const pick = (label, key, all, id) =>
    choice(
      label,
      [["", all], ...values(key).map((value) => [value, key === "network" ? stem(value) : value])],
      filters[key],
      (value) => {
        filters[key] = value;
        refresh();
      },
      id,
    );
  const search = h("input", {
    type: "search",
    id: "search",
    value: filters.text,
    placeholder: "network or property",
    oninput: () => {
      filters.text = search.value;
      refresh();
    },
  });
  const common = h("input", {
    type: "checkbox",
    id: "common",
    onchange: () => {
      filters.common = common.checked;
      refresh();
    },
  });
  common.checked = filters.common;
  return h(
    "div",
    { class: "filters" },
    parts.chips,
    h(
      "div",
      { class: "choices" },
      pick("network", "network", "all", "filter-network"),
      pick("verdict", "verdict", "all", "filter-verdict"),
      pick("difficulty", "difficulty", "all", "filter-difficulty"),
      h("label", { class: "choice" }, h("span", {}, "search"), search),
      METHODS.length > 1 ? h("label", { class: "check" }, common, " run by all methods only") : null,
    ),
  );
}

function chip(name, refresh) {
  const { colour, dash } = LOOKS.get(name),
    shown = !filters.hidden.has(name);
  const swatch = s(
    "svg",
    { width: 26, height: 10, "aria-hidden": "true" },
    s("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash || null }),
  );
  const toggle = () => {
    filters.hidden[shown ? "add" : "delete"](name);
    refresh();
    document.querySelector(`.chip[data-k="${METHODS.indexOf(name)}"]`)?.focus();
  };
  return h(
    "button",
    {
      class: "chip",
      "aria-pressed": String(shown),
      "data-k": METHODS.indexOf(name),
      title: shown ? "click to hide" : "click to show",
      onclick: toggle,
    },
    swatch,
    name,
  );
}

function drawParts(parts, refresh) {
  const now = view(),
    lines = summaries(now);
  window.boughSummary = lines; // for tests, and for the curious
  parts.headline.textContent = headline(lines);
  parts.chips.replaceChildren(...METHODS.map((name) => chip(name, refresh)));
  parts.summary.fill(lines);
  parts.runs.fill(now.runs.filter((run) => !filters.outcome || run.outcome === filters.outcome));
  fill(parts.plots, cactus(now, refresh), scatter(now, refresh));
}

// Tables

function summaryTable() {
  const shared = "mean over the instances that every shown search solves; the nodes of other solvers are no branches";
  return new Table(
    [
      { key: "method", name: "method", left: true, cell: (row) => named(row.method) },
      figure("runs", "runs"),
      figure("solved", "solved", "verified or falsified"),
      figure("verified", "verified"),
      figure("falsified", "falsified"),
      figure("timeout", "timeouts"),
      figure("unknown", "unknown"),
      figure("error", "errors"),
      figure("median", "median s", "median seconds, what was not solved at its limit, or more if it took more"),
      figure("mean", "mean s", "mean seconds, what was not solved at its limit, or more if it took more"),
      figure("par2", "PAR-2 s", "mean seconds, what was not solved at twice its limit"),
      figure("branches", "branches", shared),
      figure("bounds", "bounds", shared),
    ],
    { sort: "solved", descending: true, caption: "Summary by method", id: "summary" },
  );
}

function named(method) {
  return h("span", { class: "named" }, swatchOf(method), method);
}

function swatchOf(method) {
  return s(
    "svg",
    { width: 10, height: 10, "aria-hidden": "true" },
    s("circle", { cx: 5, cy: 5, r: 4.5, fill: LOOKS.get(method).colour }),
  );
}

function runsTable() {
  const at = (run) => DATA.instances[run.instance];
  const table = new Table(
    [
      {
        key: "property",
        name: "property",
        left: true,
        value: (run) => at(run).name,
        cell: (run) =>
          h(
            "a",
            { href: `#instance/${run.instance}`, title: at(run).property },
            at(run).name,
            at(run).traces.length ? h("span", { class: "badge", title: "with a trace" }, "tree") : null,
          ),
      },
      { key: "network", name: "network", left: true, value: (run) => at(run).net, text: (run) => at(run).net },
      ...runColumns(),
      {
        key: "difficulty",
        name: "difficulty",
        left: true,
        value: (run) => at(run).difficulty,
        text: (run) => at(run).difficulty,
      },
    ],
    { sort: "property", caption: runsCaption(), id: "runs" },
  );
  return table;
}

/** A column of numbers. */
function figure(key, name, title) {
  return { key, name, title, text: (row) => number(row[key]) };
}

/** What every table of runs says of a run: by whom, how it ended, and its figures. */
function runColumns() {
  return [
    { key: "method", name: "method", left: true, cell: (run) => named(run.method) },
    { key: "outcome", name: "verdict", left: true, cell: (run) => verdict(run) },
    figure("seconds", "seconds"),
    figure("timeout", "limit s"),
    figure("branches", "branches"),
    figure("bounds", "bounds"),
    figure("depth", "depth"),
    figure("lower", "lower bound", "proved: no point has a smaller margin; 0+ is above 0, and no more is known"),
  ];
}

function runsCaption() {
  const outcomes = [...new Set(DATA.runs.map((run) => run.outcome))].sort();
  const pick = choice(
    "ended",
    [["", "in any way"], ...outcomes],
    filters.outcome,
    (value) => {
      filters.outcome = value;
      route();
    },
    "filter-outcome",
  );
  return h("span", { class: "row" }, "Runs", pick);
}

/** How a run ended: a word and a colour. */
function verdict(run) {
  return h("span", { class: `verdict ${run.outcome}`, title: run.error ?? run.reason ?? "" }, run.outcome);
}
