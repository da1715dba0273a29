// Picks as they happen: what each scorer gave the pick and the runner-up, by how much it won, whom filters dropped.

import { fill, h, number, say, seconds } from "./dom.js";

const PATTERNS = 8;

export function picks(section, { explain }) {
  let paused = false;
  const pause = h("button", { type: "button", "aria-pressed": "false", click: toggle }, "Pause");
  const rest = h("span", { class: "rest" });
  const legend = h("ul", { class: "legend", "aria-label": "Scorers" });
  const list = h("ol", { class: "picks" });
  const none = h("p", { class: "none" }, "No request was picked for since this page is open.");
  fill(section, h("div", { class: "tools" }, pause, rest), legend, list, none);
  const colours = new Map(); // scorer → pattern
  const rows = new Map(); // pick's number → its row and age

  function toggle() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    say(pause, paused ? "Go on" : "Pause");
  }

  function pattern(scorer) {
    if (!colours.has(scorer)) {
      colours.set(scorer, colours.size % PATTERNS);
      legend.append(h("li", {}, h("i", { class: `swatch p${colours.get(scorer)}` }), scorer));
    }
    return `p${colours.get(scorer)}`;
  }

  return (state) => {
    say(rest, state.more ? `and ${state.more} more in this quarter of a second` : "");
    if (paused) return;
    none.hidden = state.picks.length > 0;
    const wanted = new Set(state.picks.map((pick) => `${state.instance}/${pick.number}`));
    for (const [key, row] of rows) {
      if (!wanted.has(key)) {
        row.element.remove();
        rows.delete(key);
      }
    }
    const now = state.heardAt;
    [...state.picks].reverse().forEach((pick) => {
      const key = `${state.instance}/${pick.number}`;
      let row = rows.get(key);
      if (!row) {
        row = made(pick, { pattern, explain });
        rows.set(key, row);
        list.prepend(row.element);
      }
      const age = Math.round(now - pick.when);
      say(row.age, age < 1 ? "now" : `${seconds(age)} ago`);
    });
  };
}

function made(pick, { pattern, explain }) {
  const age = h("span", { class: "ago" });
  const most = Math.max(pick.bars.reduce((sum, each) => sum + each.weight, 0), 1e-9);
  const facts = [
    pick.score === null ? undefined : `score ${number(pick.score, 3)}`,
    pick.runner ? `runner-up ${pick.runner} with ${number(pick.runner_score, 3)}` : undefined,
    pick.runner_score === null || pick.score === null ? undefined : `margin ${number(pick.score - pick.runner_score, 3)}`,
    `of ${pick.candidates} endpoints`,
    ...pick.lost.map(([filter, lost]) => `${filter} dropped ${lost}`),
  ].filter((text) => text !== undefined);
  const parts = pick.bars.length
    ? [stack(pick.bars, "picked", most, pattern), pick.runner ? stack(pick.bars, "runner", most, pattern) : undefined]
    : [h("p", { class: "reason" }, pick.reason)];
  const button = h(
    "button",
    { type: "button", class: "pick", click: () => explain(pick), "aria-label": `Explain the pick of ${pick.picked}` },
    h(
      "span",
      { class: "line" },
      h("b", { class: "name" }, pick.name),
      h("span", { class: "where" }, pick.picked),
      h("span", { class: "model" }, pick.model),
      pick.tokens === null ? undefined : h("span", { class: "tokens" }, `${pick.tokens} tokens`),
      h("span", { class: "id" }, pick.id),
      age,
    ),
    ...parts,
    h("span", { class: "facts" }, facts.join(" · ")),
  );
  return { element: h("li", { "data-number": pick.number }, button), age };
}

function stack(bars, which, most, pattern) {
  const pieces = bars
    .filter((each) => each[which])
    .map((each) => {
      const piece = h("i", { class: `piece ${pattern(each.scorer)}`, title: `${each.scorer}: ${number(each[which], 3)}` });
      piece.style.width = `${(each[which] / most) * 100}%`;
      return piece;
    });
  bars.forEach((each) => pattern(each.scorer));
  const said = bars.map((each) => `${each.scorer} ${number(each[which], 2)}`).join(", ");
  const label = which === "picked" ? "pick" : "runner-up";
  return h(
    "span",
    { class: `stack ${which}` },
    h("span", { class: "which" }, label),
    h("span", { class: "track", role: "img", "aria-label": `${label}: ${said}` }, ...pieces),
    h("span", { class: "said" }, said),
  );
}
