// The picker's stream of events, for as long as the page is open: begun again when it ends, when the picker says nothing
// for too long (it hangs, or this machine slept), and when a page that nobody saw is looked at again.
//
// Read with fetch, not with EventSource, which cannot send a token.

const SILENCE = 5; // seconds; the picker says something every second
const HIDDEN = 30; // seconds, after which a page that nobody sees stops to watch
const WAITS = [0.25, 0.5, 1, 2, 4];

export function follow(url, { token, heard, said }) {
  let attempt = null; // what ends the current one
  let failures = 0;
  let lastWord = Date.now();
  let timer = 0;
  let hiddenSince = 0;

  function again(wait) {
    clearTimeout(timer);
    timer = setTimeout(begin, wait * 1000);
  }

  function stop() {
    clearTimeout(timer);
    const ended = attempt;
    attempt = null;
    if (ended) ended.abort();
  }

  async function begin() {
    stop();
    const mine = new AbortController();
    attempt = mine;
    lastWord = Date.now();
    let trouble = "the picker ended the stream";
    try {
      const answer = await fetch(url, { headers: headers(token()), signal: mine.signal, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) {
        if (attempt === mine) said("token", await answer.text());
        return;
      }
      if (!answer.ok) trouble = await problem(answer);
      else {
        await read(answer.body.getReader(), (message) => {
          if (attempt !== mine) return;
          failures = 0;
          lastWord = Date.now();
          heard(message);
        });
      }
    } catch (error) {
      trouble = "the picker cannot be reached";
    }
    if (attempt !== mine) return; // given up by us
    attempt = null;
    const wait = WAITS[Math.min(failures++, WAITS.length - 1)];
    said("lost", trouble);
    again(wait);
  }

  setInterval(() => {
    const now = Date.now();
    if (hiddenSince && now - hiddenSince > HIDDEN * 1000 && attempt) {
      stop();
      said("asleep", "nobody looks: not watching");
    } else if (attempt && now - lastWord > SILENCE * 1000) {
      said("silent", `no word from the picker for ${Math.round((now - lastWord) / 1000)} s`);
      stop();
      again(WAITS[Math.min(failures++, WAITS.length - 1)]);
    }
  }, 1000);

  document.addEventListener("visibilitychange", () => {
    hiddenSince = document.hidden ? Date.now() : 0;
    if (!document.hidden && !attempt) begin();
  });

  begin();
  return { begin };
}

export const headers = (token) => (token ? { authorization: `Bearer ${token}` } : {});

/** What a refusal says, in a sentence. */
export async function problem(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).problem || text;
  } catch {
    return text.trim() || `the picker answered ${answer.status}`;
  }
}

async function read(reader, heard) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) heard(JSON.parse(event.slice(6)));
  }
}
