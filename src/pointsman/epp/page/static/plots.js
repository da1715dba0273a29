// The last fifteen minutes, drawn on canvas. Lines differ by dash and by end label, not only by colour; the latest value
// of each stands in the legend as text.

import { fill, h, number, say, seconds } from "./dom.js";

const SPANS = [2, 5, 15]; // minutes: the least that holds all points
const DASHES = [[], [6, 3], [2, 3]];
const GAP = 12; // seconds without a point, after which a line is broken

const PLOTS = [
  { title: "Picks and errors a second", unit: (value) => number(value, value < 10 ? 2 : 0),
    lines: [["picks/s", (p) => p.rate], ["errors/s", (p) => p.errors]] },
  { title: "Time to first token", unit: seconds,
    lines: [["p50", (p) => p.firstToken[0]], ["p90", (p) => p.firstToken[1]], ["p99", (p) => p.firstToken[2]]] },
  { title: "Latency of requests", unit: seconds,
    lines: [["p50", (p) => p.duration[0]], ["p90", (p) => p.duration[1]], ["p99", (p) => p.duration[2]]] },
  { title: "Prefix-cache hits, share of prompts", unit: (value) => (value === null ? "–" : `${number(value * 100, 1)} %`), most: 1,
    lines: [["expected by the picker", (p) => p.expected], ["reported by servers", (p) => p.cached]] },
];

export function plots(section) {
  const made = PLOTS.map((plot) => {
    const canvas = h("canvas", { role: "img", width: 640, height: 220 });
    const values = plot.lines.map(() => h("b", { class: "value" }));
    const legend = h("ul", { class: "legend" },
      ...plot.lines.map(([name], at) => h("li", { "data-line": name }, h("i", { class: `stroke s${at}` }), `${name} `, values[at])));
    const figure = h("figure", {}, h("figcaption", {}, plot.title), canvas, legend);
    return { plot, canvas, values, figure };
  });
  const none = h("p", { class: "none" }, "The first point comes after ten seconds.");
  fill(section, none, h("div", { class: "plots" }, ...made.map((each) => each.figure)));

  return (state) => {
    none.hidden = state.points.length > 0;
    const last = state.points.at(-1);
    for (const { plot, canvas, values } of made) {
      plot.lines.forEach(([, read], at) => say(values[at], last ? plot.unit(read(last)) : "–"));
      const said = plot.lines.map(([name], at) => `${name} ${values[at].textContent}`).join(", ");
      canvas.setAttribute("aria-label", `${plot.title}: now ${said}`);
      draw(canvas, plot, state);
    }
  };
}

function draw(canvas, plot, state) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const style = getComputedStyle(canvas);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const box = { left: 56, right: width - 8, top: 8, bottom: height - 22 };
  const values = state.points.flatMap((point) => plot.lines.map(([, read]) => read(point))).filter((v) => v !== null);
  const top = plot.most || nice(Math.max(...values, 0));
  const age = state.points.length ? state.heardAt - state.points[0].when : 0;
  const span = SPANS.find((minutes) => age <= minutes * 60) || SPANS.at(-1);
  const x = (when) => box.right - ((state.heardAt - when) / (span * 60)) * (box.right - box.left);
  const y = (value) => box.bottom - (value / top) * (box.bottom - box.top);
  grid(pen, box, { top, span, unit: plot.unit, style, y });
  plot.lines.forEach(([, read], at) => {
    pen.strokeStyle = style.getPropertyValue(`--line-${at}`);
    pen.setLineDash(DASHES[at]);
    pen.lineWidth = 2;
    pen.beginPath();
    let before = null;
    for (const point of state.points) {
      const value = read(point);
      if (value === null) {
        before = null;
        continue;
      }
      const place = [Math.max(box.left, x(point.when)), y(value)];
      if (before === null || point.when - before > GAP) pen.moveTo(place[0] - 1, place[1]);
      pen.lineTo(...place);
      before = point.when;
    }
    pen.stroke();
  });
}

function grid(pen, box, { top, span, unit, style, y }) {
  pen.setLineDash([]);
  pen.lineWidth = 1;
  pen.strokeStyle = style.getPropertyValue("--grid");
  pen.fillStyle = style.getPropertyValue("--text");
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(top * share)) + 0.5;
    pen.beginPath();
    pen.moveTo(box.left, at);
    pen.lineTo(box.right, at);
    pen.stroke();
    pen.fillText(unit(top * share), box.left - 6, at);
  }
  pen.textAlign = "center";
  for (const share of [1, 0.5, 0]) {
    const at = box.right - share * (box.right - box.left);
    pen.fillText(share ? `−${span * share} min` : "now", Math.min(at, box.right - 12), box.bottom + 13);
  }
}

/** The least round number that is not below the value. */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}
