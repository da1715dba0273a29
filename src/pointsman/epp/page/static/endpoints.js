// Every endpoint as a row of bars: what it says of itself, what we sent it, and whether it may be picked.

import { bar, fill, h, number, say, seconds } from "./dom.js";

const HEADS = ["Endpoint", "Running", "Waiting", "In flight", "KV cache", "Metrics' age", "Picks", "State"];
const STATES = { in: "● in", out: "✕ ejected", probe: "◐ probing" };

export function endpoints(section) {
  const body = h("tbody");
  const none = h("p", { class: "none" }, "The picker knows no endpoint.");
  const head = h("thead", {}, h("tr", {}, ...HEADS.map((text) => h("th", { scope: "col" }, text))));
  fill(section, h("table", { class: "endpoints" }, h("caption", {}, "Endpoints"), head, body), none);
  const rows = new Map();

  return (state) => {
    const all = [...state.endpoints.values()].sort(byName);
    const scale = Math.max(8, ...all.map((each) => Math.max(each.running || 0, each.waiting || 0, each.inflight)));
    none.hidden = all.length > 0;
    for (const [target, row] of rows) {
      if (!state.endpoints.has(target)) {
        row.element.remove();
        rows.delete(target);
      }
    }
    all.forEach((each, at) => {
      const row = rows.get(each.target) || made(rows, each.target);
      row.set(each, scale);
      if (body.children[at] !== row.element) body.insertBefore(row.element, body.children[at] || null);
    });
  };
}

const byName = (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || a.target.localeCompare(b.target);

function made(rows, target) {
  const name = h("span", { class: "name" });
  const where = h("span", { class: "where" });
  const [running, waiting, inflight, kv] = ["running", "waiting", "inflight", "kv"].map(bar);
  const [age, picks, state] = [h("td", { class: "age" }), h("td", { class: "count" }), h("td", { class: "state" })];
  const cells = [running, waiting, inflight, kv].map((each) => h("td", {}, each.element));
  const element = h("tr", { "data-target": target }, h("th", { scope: "row" }, name, where), ...cells, age, picks, state);
  const row = {
    element,
    set(each, scale) {
      say(name, each.name);
      say(where, each.namespace === "default" ? each.target : `${each.namespace} · ${each.target}`);
      running.set(each.running / scale, number(each.running));
      waiting.set(each.waiting / scale, number(each.waiting));
      inflight.set(each.inflight / scale, number(each.inflight));
      kv.set(each.kv, each.kv === null ? "–" : `${(each.kv * 100).toFixed(1)} %`);
      say(age, each.age === null ? "never read" : each.age < 0.2 ? "fresh" : seconds(each.age));
      say(picks, number(each.picks));
      say(state, each.why ? `${STATES[each.state]}: ${each.why}` : STATES[each.state]);
      if (element.dataset.state !== each.state) element.dataset.state = each.state;
    },
  };
  rows.set(target, row);
  return row;
}
