// The page: follows the picker's stream, keeps what is known, and draws the view that is looked at, once a frame.

import { config } from "./config.js";
import { fill, h, say } from "./dom.js";
import { endpoints } from "./endpoints.js";
import { explanation } from "./explanation.js";
import { picks } from "./picks.js";
import { plots } from "./plots.js";
import { apply, empty } from "./state.js";
import { follow } from "./stream.js";
import { whatif } from "./whatif.js";

const byId = (id) => document.getElementById(id);
const state = empty();
let bearer = "";
const token = () => bearer;

const views = {
  endpoints: endpoints(byId("endpoints")),
  picks: picks(byId("picks"), { explain: explanation(byId("explanation"), { token }) }),
  plots: plots(byId("plots")),
  config: config(byId("config")),
  whatif: whatif(byId("whatif"), { token }),
};
const names = Object.keys(views);
let current = "endpoints";

// -- drawing ---------------------------------------------------------------------------------------------------------

let wanted = false;

function redraw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => {
    wanted = false;
    const began = performance.now();
    views[current](state);
    totals();
    performance.clearMeasures("draw");
    performance.measure("draw", { start: began });
  });
}

const TOTALS = [["picked", "picked"], ["refused", "refused"], ["ended", "ended"], ["elsewhere", "served elsewhere"]];
const counts = new Map(TOTALS.map(([key]) => [key, h("dd", { "data-total": key })]));
fill(byId("totals"), ...TOTALS.flatMap(([key, text]) => [h("dt", {}, text), counts.get(key)]));

function totals() {
  for (const [key, element] of counts) say(element, String(state.totals[key] ?? 0));
}

// -- views -----------------------------------------------------------------------------------------------------------

function show(name, { focus = false } = {}) {
  current = names.includes(name) ? name : "endpoints";
  for (const each of names) {
    const tab = byId(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === current));
    tab.tabIndex = each === current ? 0 : -1;
    byId(each).hidden = each !== current;
  }
  if (focus) byId(`tab-${current}`).focus();
  redraw();
}

for (const name of names) byId(`tab-${name}`).addEventListener("click", () => { location.hash = name; });
document.querySelector("nav").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const to = { Home: 0, End: names.length - 1 }[event.key] ?? (step && (names.indexOf(current) + step + names.length) % names.length);
  if (to === undefined) return;
  event.preventDefault();
  history.replaceState(null, "", `#${names[to]}`);
  show(names[to], { focus: true });
});
window.addEventListener("hashchange", () => show(location.hash.slice(1)));
window.addEventListener("resize", redraw);
show(location.hash.slice(1));

// -- the stream ------------------------------------------------------------------------------------------------------

function status(kind, text) {
  const element = byId("status");
  element.dataset.state = kind;
  say(element, text);
}

const stream = follow("debug/live", {
  token,
  heard(message) {
    apply(state, message, { wall: Date.now() / 1000 });
    byId("token").hidden = true;
    status("live", "● live");
    redraw();
  },
  said(kind, text) {
    status(kind, kind === "asleep" ? text : `⚠ ${text}`);
    byId("token").hidden = kind !== "token";
  },
});

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  bearer = byId("bearer").value.trim();
  stream.begin();
});
