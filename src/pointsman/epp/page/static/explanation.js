// One decision whole: every candidate with what each scorer gave it or which filter dropped it, and what plugins took.

import { fill, h, number } from "./dom.js";
import { headers, problem } from "./stream.js";

export function explanation(dialog, { token }) {
  const close = () => h("button", { type: "button", class: "close", click: () => dialog.close() }, "Close");

  return async (pick) => {
    const answer = await fetch(`debug/pick?number=${pick.number}`, { headers: headers(token()) }).catch(() => null);
    const title = h("h2", { id: "explanation-title" }, `Why ${pick.name}?`);
    if (!answer || !answer.ok) {
      const said = answer ? await problem(answer) : "the picker cannot be reached";
      fill(dialog, title, h("p", {}, said), close());
    } else {
      fill(dialog, title, ...whole(await answer.json()), close());
    }
    if (!dialog.open) dialog.showModal();
  };
}

function whole(record) {
  const facts = [
    ["Request", record.request_id],
    ["Model", record.model],
    ["Priority", String(record.priority)],
    ["Prompt tokens", number(record.prompt_tokens)],
    ["Sent to", record.picked.join(", then ")],
    ["Reason", record.reason],
  ];
  const list = h("dl", { class: "facts" }, ...facts.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
  const profiles = Object.entries((record.explain || { profiles: {} }).profiles);
  const tables = profiles.length
    ? profiles.map(([name, profile]) => table(name, profile, record))
    : [candidates(record)];
  const costs = record.explain ? [plugins(record.explain)] : [];
  return [list, ...tables, ...costs];
}

const best = (record) => [...record.candidates].sort((a, b) => (b.score ?? -1) - (a.score ?? -1));

function table(name, profile, record) {
  const scorers = Object.keys(profile.weights);
  const about = new Map(profile.candidates.map((each) => [each.address, each]));
  const rows = best(record).map((each) => {
    const part = about.get(each.address) || {};
    const scores = scorers.map((scorer) => h("td", {}, number((part.scores || {})[scorer], 3)));
    return h("tr", { "data-picked": record.picked[0] === each.address }, h("th", { scope: "row" }, each.name || each.address),
      ...state(each), ...scores, h("td", {}, part.dropped_by ? `dropped by ${part.dropped_by}` : number(each.score, 3)));
  });
  const heads = ["Endpoint", ...STATE, ...scorers.map((each) => `${each} × ${profile.weights[each]}`), "Score"];
  return h("table", { class: "scores" }, h("caption", {}, `Profile ${name}`), head(heads), h("tbody", {}, ...rows));
}

function candidates(record) {
  const rows = best(record).map((each) =>
    h("tr", { "data-picked": record.picked[0] === each.address }, h("th", { scope: "row" }, each.name || each.address),
      ...state(each), h("td", {}, number(each.score, 3))));
  return h("table", { class: "scores" }, head(["Endpoint", ...STATE, "Score"]), h("tbody", {}, ...rows));
}

const STATE = ["Running", "Waiting", "In flight", "KV cache"];

const state = (each) => [
  h("td", {}, number(each.running)), h("td", {}, number(each.waiting)), h("td", {}, number(each.inflight)),
  h("td", {}, `${number(each.kv_usage * 100, 1)} %`),
];

const head = (texts) => h("thead", {}, h("tr", {}, ...texts.map((text) => h("th", { scope: "col" }, text))));

function plugins(explain) {
  const steps = [...explain.plugins, ...Object.values(explain.profiles).flatMap((profile) => profile.plugins)];
  const rows = steps.map((step) =>
    h("tr", {}, h("td", {}, step.point), h("td", {}, step.plugin), h("td", {}, `${number(step.microseconds, 1)} µs`),
      h("td", {}, step.error || "")));
  return h("table", { class: "costs" }, h("caption", {}, "What plugins took"), head(["Point", "Plugin", "Time", "Error"]),
    h("tbody", {}, ...rows));
}
