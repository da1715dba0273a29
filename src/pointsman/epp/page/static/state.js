// What is known of the picker, from its messages. No element is touched here.

export const KEPT_PICKS = 60;
const KEPT_SECONDS = 15 * 60;

const ENDPOINT = ["target", "name", "namespace", "running", "waiting", "inflight", "kv", "age", "state", "why", "picks"];
const POINT = ["at", "rate", "errors", "firstToken", "duration", "expected", "cached"];
const BAR = ["scorer", "weight", "picked", "runner"];

export function empty() {
  return {
    instance: "", now: 0, heardAt: 0, endpoints: new Map(), picks: [], more: 0, points: [], config: null, totals: {},
  };
}

const named = (names, row) => Object.fromEntries(names.map((name, at) => [name, row[at]]));

/** Take a message; `wall` is this machine's clock in seconds, which is all that two pickers have in common. */
export function apply(state, message, { wall }) {
  const all = message.instance !== undefined;
  if (all) {
    state.endpoints = new Map();
    state.picks = [];
    state.points = message.instance === state.instance ? [] : state.points;
    state.instance = message.instance;
  }
  state.now = message.now;
  state.heardAt = wall;
  const when = (at) => wall - (message.now - at);
  for (const row of message.endpoints || []) state.endpoints.set(row[0], named(ENDPOINT, row));
  for (const target of message.gone || []) state.endpoints.delete(target);
  const picks = (message.picks || []).map((pick) => ({
    ...pick, when: when(pick.at), bars: pick.bars.map((row) => named(BAR, row)),
  }));
  if (picks.length) state.picks = [...picks.reverse(), ...state.picks].slice(0, KEPT_PICKS);
  state.more = message.more || 0;
  for (const row of message.points || []) {
    const point = named(POINT, row);
    state.points.push({ ...point, when: when(point.at) });
  }
  state.points = state.points.filter((point) => point.when > wall - KEPT_SECONDS);
  if (message.config) {
    state.config = {
      ...message.config, when: when(message.config.since), refusedWhen: when(message.config.refused_at),
    };
  }
  if (message.totals) state.totals = message.totals;
}
