// A counterexample beside the image it came from, and the difference of both.

function counterexample(point) {
  const best = (y) => (y?.length ? y.indexOf(Math.max(...y)) : null);
  const seen = (y) => (best(y) === null ? null : `class ${best(y)}, output ${number(y[best(y)])}`);
  const span = range([...(point.image ?? []), ...point.x]),
    [low, high] = span.low >= 0 && span.high <= 1 ? [0, 1] : [span.low, span.high];
  const scaled = (values) => values.map((v) => (v - low) / (high - low || 1));
  const change = point.image?.map((v, k) => point.x[k] - v),
    most = change ? Math.max(...change.map(Math.abs)) : 0;
  const parts = [];
  if (point.image) parts.push(picture("image", point.shape, scaled(point.image), seen(point.image_y)));
  parts.push(picture("counterexample", point.shape, scaled(point.x), seen(point.y)));
  if (change) parts.push(difference(point.shape, change, most));
  return h(
    "section",
    { class: "card", id: "counterexample" },
    h("h2", {}, "Counterexample"),
    point.missing ? h("p", { class: "warning" }, `The image is missing: ${point.missing}`) : null,
    h("div", { class: "pictures" }, parts),
    h(
      "p",
      { class: "muted" },
      low === 0 && high === 1
        ? "Pixels from 0 (black) to 1 (white)."
        : `Inputs from ${number(low)} (black) to ${number(high)} (white), as the network sees them.`,
    ),
  );
}

function range(values) {
  return {
    low: values.reduce((a, b) => Math.min(a, b), Infinity),
    high: values.reduce((a, b) => Math.max(a, b), -Infinity),
  };
}

function picture(title, [channels, height, width], values, below) {
  const plane = height * width;
  const colour = (k) =>
    channels === 3 ? [values[k], values[k + plane], values[k + 2 * plane]] : [values[k], values[k], values[k]];
  return painted(title, width, height, (k) => colour(k).map((v) => Math.round(255 * clamp(v, 0, 1))), below);
}

/** The change per pixel, of several channels the one that changed most: blue for less, vermilion for more. */
function difference([channels, height, width], change, most) {
  const plane = height * width,
    blue = [0, 114, 178],
    red = [213, 94, 0];
  const strongest = (k) =>
    Array.from({ length: channels }, (_, c) => change[k + c * plane]).reduce(
      (a, b) => (Math.abs(b) > Math.abs(a) ? b : a),
      0,
    );
  const mix = (k) => {
    const v = strongest(k) / (most || 1),
      to = v > 0 ? red : blue;
    return to.map((c) => Math.round(255 + (c - 255) * Math.abs(v)));
  };
  return painted("difference", width, height, mix, `at most ${number(most)} (blue less, vermilion more)`);
}

function painted(title, width, height, colour, below) {
  const canvas = h("canvas", { width, height, class: "picture", role: "img", "aria-label": title }),
    pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  for (let k = 0; k < width * height; k++) image.data.set([...colour(k), 255], 4 * k);
  pen.putImageData(image, 0, 0);
  return h("figure", {}, h("figcaption", {}, title), canvas, below ? h("p", {}, below) : null);
}
