// What another configuration would have decided: the last minutes' decisions, side by side. `pointsman replay` in a page.

import { bar, fill, h, number, say, seconds } from "./dom.js";
import { headers, problem } from "./stream.js";

export function whatif(section, { token }) {
  const text = h("textarea", { id: "whatif-text", spellcheck: "false", rows: "24", maxlength: "60000" });
  const run = h("button", { type: "submit" }, "Decide again");
  const reset = h("button", { type: "button" }, "Back to what is in effect");
  const result = h("div", { id: "whatif-result", "aria-live": "polite" });
  const form = h("form", {},
    h("label", { for: "whatif-text" }, "Edit the configuration. The decisions of the last five minutes are made again under it; " +
      "nothing of what runs changes."), text, h("div", { class: "tools" }, run, reset));
  fill(section, form, result);
  let untouched = true;
  let effective = "";

  text.addEventListener("input", () => { untouched = false; });
  reset.addEventListener("click", () => { text.value = effective; untouched = true; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    run.disabled = true;
    fill(result, h("p", {}, "deciding again …"));
    fill(result, ...(await ask(text.value, token())));
    run.disabled = false;
  });

  return (state) => {
    if (!state.config || state.config.text === effective) return;
    effective = state.config.text;
    if (untouched) text.value = effective;
  };
}

async function ask(text, token) {
  try {
    const init = { method: "POST", body: text, headers: { ...headers(token), "content-type": "application/yaml" } };
    const answer = await fetch("debug/what-if", init);
    if (!answer.ok) return [h("p", { class: "refusal", role: "alert" }, await problem(answer))];
    return shown(await answer.json());
  } catch {
    return [h("p", { class: "refusal", role: "alert" }, "the picker cannot be reached")];
  }
}

function shown(found) {
  const refused = found.refused ? `, ${found.refused} of them refused` : "";
  const sentence = found.decisions
    ? `${found.decisions} decisions of the last ${seconds(found.seconds)} made again: ${found.different} would be different${refused}`
    : "No decision was made in the last minutes.";
  const most = Math.max(1, ...found.endpoints.flatMap(([, before, after]) => [before, after]));
  const shares = found.endpoints.map(([target, before, after]) => {
    const [was, would] = [bar("before"), bar("after")];
    was.set(before / most, number(before));
    would.set(after / most, number(after));
    return h("tr", { "data-target": target }, h("th", { scope: "row" }, target), h("td", {}, was.element), h("td", {}, would.element));
  });
  const rows = found.rows.map((each) => h("tr", {},
    h("td", {}, each.id), h("td", {}, each.recorded), h("td", {}, score(each.recorded_score, each.replayed)),
    h("td", {}, each.replayed || `nobody: ${each.refusal}`), h("td", {}, each.replayed ? number(each.replayed_score, 3) : "")));
  return [
    h("p", { class: "summary" }, sentence),
    h("table", { class: "sides" }, h("caption", {}, "Requests by endpoint"), head(["Endpoint", "As it was", "Under this configuration"]),
      h("tbody", {}, ...shares)),
    rows.length
      ? h("table", { class: "different" }, h("caption", {}, rows.length < found.different ? `The first ${rows.length} that differ` : "Those that differ"),
        head(["Request", "Was sent to", "Its score now", "Would be sent to", "Score"]), h("tbody", {}, ...rows))
      : h("p", {}, "No request would be sent elsewhere."),
  ];
}

const score = (value, replayed) => (!replayed ? "" : value === null ? "filtered out" : number(value, 3));
const head = (texts) => h("thead", {}, h("tr", {}, ...texts.map((text) => h("th", { scope: "col" }, text))));
