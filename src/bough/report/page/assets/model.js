// Runs, what is shown of them, and the figures made of what is shown.

const SOLVED = new Set(["verified", "falsified"]);
const MEASURES = {
  seconds: { name: "time", unit: "seconds", scale: "log" },
  branches: { name: "branches", unit: "branches", scale: "log1p" },
  bounds: { name: "bounds", unit: "bounds computed", scale: "log1p" },
};

const METHODS = [...new Set(DATA.runs.map((run) => run.method))];
const LOOKS = new Map(
  METHODS.map((name, k) => [
    name,
    {
      colour: PALETTE[k % PALETTE.length],
      dash: DASHES[Math.floor(k / PALETTE.length) % DASHES.length],
    },
  ]),
);

DATA.runs.forEach((run, k) => {
  run.id = k;
  run.outcome = run.error ? "error" : run.verdict;
  run.solved = SOLVED.has(run.verdict);
});

/** The runs of every instance. */
const RUNS_OF = DATA.instances.map(() => []);
DATA.runs.forEach((run) => RUNS_OF[run.instance].push(run));

DATA.instances.forEach((instance, k) => {
  instance.id = k;
  instance.name = stem(instance.property);
  instance.net = stem(instance.network);
  const said = new Set(RUNS_OF[k].filter((run) => run.solved).map((run) => run.verdict));
  instance.verdict = said.size > 1 ? "contradictory" : ([...said][0] ?? "undecided");
  instance.traces = DATA.traces.filter((trace) => trace.instance === k);
});

/** What the reader chose to see; a method that is hidden does not count as one that has to agree. */
const filters = { network: "", verdict: "", difficulty: "", text: "", outcome: "", common: false, hidden: new Set() };

function view() {
  const methods = METHODS.filter((name) => !filters.hidden.has(name));
  const wanted = filters.text.trim().toLowerCase();
  const instances = DATA.instances.filter(
    (one) =>
      (!filters.network || one.network === filters.network) &&
      (!filters.verdict || one.verdict === filters.verdict) &&
      (!filters.difficulty || one.difficulty === filters.difficulty) &&
      (!wanted || `${one.network} ${one.property}`.toLowerCase().includes(wanted)) &&
      (!filters.common || methods.every((name) => RUNS_OF[one.id].some((run) => run.method === name))),
  );
  const kept = new Set(instances.map((one) => one.id));
  const runs = DATA.runs.filter((run) => kept.has(run.instance) && !filters.hidden.has(run.method));
  return { methods, instances, runs };
}

// These figures are those of experiments/laboratory/statistics.py, and a test holds them against each other.

/** Seconds as the paper's averages take them: without an answer the limit, or more if it was overrun. */
function atLimit(run) {
  return run.solved ? run.seconds : Math.max(run.seconds ?? 0, run.timeout ?? 0);
}

/** PAR-2: what was not solved counts twice its limit; without a limit, twice what it took. */
function penalised(run) {
  return run.solved ? run.seconds : 2 * (run.timeout || run.seconds || 0);
}

/** One line of the summary per method that has runs. */
function summaries({ methods, runs }) {
  const mine = new Map(methods.map((name) => [name, runs.filter((run) => run.method === name)]));
  const solved = new Map([...mine].map(([name, its]) => [name, its.filter((run) => run.solved)]));
  // Branches are averaged over what every search solved: not those of other solvers, whose nodes are no branches, and
  // a search that solved nothing has no say.
  const searches = methods.filter((name) => solved.get(name).length && solved.get(name).every((run) => run.counted));
  const sets = searches.map((name) => new Set(solved.get(name).map((run) => run.instance)));
  const shared = new Set(sets.length ? [...sets[0]].filter((k) => sets.every((set) => set.has(k))) : []);
  return methods
    .map((name) => summary(name, mine.get(name), shared, searches.includes(name)))
    .filter((line) => line.runs);
}

function summary(method, runs, shared, isSearch) {
  const count = (outcome) => runs.filter((run) => run.outcome === outcome).length;
  const times = runs.map(atLimit);
  const both = runs.filter((run) => run.solved && shared.has(run.instance));
  const average = (key) => (isSearch && both.every((run) => run[key] !== null) ? mean(both.map((run) => run[key])) : null);
  return {
    method,
    runs: runs.length,
    shared: shared.size,
    solved: runs.filter((run) => run.solved).length,
    verified: count("verified"),
    falsified: count("falsified"),
    timeout: count("timeout"),
    unknown: count("unknown"),
    error: count("error"),
    median: median(times),
    mean: mean(times),
    par2: mean(runs.map(penalised)),
    branches: average("branches"),
    bounds: average("bounds"),
  };
}

/** What is to be seen, in a sentence or two. */
function headline(lines) {
  if (!lines.length) return "Nothing is left to show: loosen the filters.";
  const order = [...lines].sort((a, b) => b.solved - a.solved || a.mean - b.mean);
  const [best, ...rest] = order;
  const solves = `${best.method} solves ${number(best.solved)} of ${number(best.runs)}`;
  if (!rest.length) {
    const parts = `${number(best.verified)} verified, ${number(best.falsified)} falsified`;
    return `${solves} (${parts}), half of the runs within ${seconds(best.median)}.`;
  }
  const others = rest
    .slice(0, 3)
    .map((line) => `${line.method} ${number(line.solved)}${line.runs === best.runs ? "" : ` of ${number(line.runs)}`}`);
  const more = rest.length > 3 ? `, and ${plural(rest.length - 3, "method")} no more than that` : "";
  return `${solves}, ${others.join(", ")}${more}. ${fewest(lines)}`;
}

function fewest(lines) {
  const shared = lines[0].shared;
  const ranked = lines.filter((line) => line.branches !== null).sort((a, b) => a.branches - b.branches);
  if (!shared || ranked.length < 2) return "No instance is solved by every search.";
  const [least] = ranked,
    most = ranked[ranked.length - 1];
  if (least.branches === most.branches)
    return `On the ${number(shared)} that every search solves, they take equally many branches.`;
  const figures = `${number(least.branches)} in the mean, ${most.method} ${number(most.branches)}`;
  return `On the ${number(shared)} that every search solves, ${least.method} takes the fewest branches: ${figures}.`;
}
