// The configuration in effect, when it was last taken over, and what was refused.

import { fill, h, say, seconds } from "./dom.js";

export function config(section) {
  const [source, since, reloads, refused] = ["dd", "dd", "dd", "dd"].map((tag) => h(tag));
  const reason = h("p", { class: "refusal", role: "alert" });
  const text = h("pre", { tabindex: "0", "aria-label": "The configuration in effect" });
  const facts = h("dl", { class: "facts" },
    h("dt", {}, "From"), source, h("dt", {}, "In effect for"), since, h("dt", {}, "Versions taken over"), reloads,
    h("dt", {}, "Versions refused"), refused);
  fill(section, h("h2", {}, "Configuration in effect"), facts, reason, text);

  return (state) => {
    const now = state.config;
    if (!now) return;
    say(source, now.source);
    say(since, seconds(Math.max(0, state.heardAt - now.when)));
    say(reloads, String(now.reloads));
    say(refused, String(now.rejected));
    const ago = seconds(Math.max(0, state.heardAt - now.refusedWhen));
    say(reason, now.refusal ? `Refused ${ago} ago, the version before stays: ${now.refusal}` : "");
    reason.hidden = !now.refusal;
    say(text, now.text);
  };
}
