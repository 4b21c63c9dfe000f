// The state of the service, an event a second, shared by all pages; and whether it answers.

import { Failure, events, parsed } from "./api.js";

const KEPT = 120; // samples: two minutes

/** `status` is the last one told, `heard` when (ms), `link` one of connecting, live, lost, refused. */
export const state = { status: null, heard: 0, link: "connecting", samples: [] };

const SCOPES = ["read", "write", "admin"];

/** Whether the token allows what needs this scope; before the status is known, nothing is said to be refused. */
export const may = (scope) => SCOPES.indexOf(state.status?.token.scope ?? "admin") >= SCOPES.indexOf(scope);

const listeners = new Set();
let running = null;

/** Call this whenever something is new, and now if something is known, until `signal` aborts. The status is null before the first. */
export function watch(call, signal) {
  listeners.add(call);
  signal?.addEventListener("abort", () => listeners.delete(call));
  if (state.status) call(state);
}

/** What a page does wrong is no fault of the connection. */
function tell() {
  for (const call of listeners) {
    try {
      call(state);
    } catch (error) {
      reportError(error);
    }
  }
}

export function start() {
  running?.abort();
  running = new AbortController();
  follow(running.signal);
}

async function follow(signal) {
  let wait = 250;
  while (!signal.aborted) {
    try {
      await events(
        "/v1/status",
        (text) => {
          const last = [...parsed(text)].pop();
          if (!last) return;
          wait = 250;
          take(JSON.parse(last.data));
        },
        signal,
      );
      throw new Failure("The service has closed the connection.");
    } catch (error) {
      if (signal.aborted) return;
      if (error.type === "unauthorized") {
        state.link = "refused";
        tell();
        return; // until somebody logs in
      }
      state.link = "lost";
      tell();
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, 4000);
  }
}

function take(status) {
  const views = Object.fromEntries(Object.entries(status.views).map(([name, view]) => [name, view.feed?.changes ?? 0]));
  const restarted = state.samples.length && status.uptime_seconds < state.samples[state.samples.length - 1].at;
  if (restarted) state.samples = [];
  state.samples.push({ at: status.uptime_seconds, changes: status.figures.changes ?? 0, batches: status.figures.batches ?? 0, views });
  if (state.samples.length > KEPT) state.samples.shift();
  Object.assign(state, { status, heard: Date.now(), link: "live" });
  tell();
}

/** Changes a second, over about the last `seconds`; null before two samples. `of` takes the counter from a sample. */
export function rateOf(of, seconds = 3) {
  const samples = state.samples;
  if (samples.length < 2) return null;
  const last = samples[samples.length - 1];
  let first = samples[samples.length - 2];
  for (let at = samples.length - 2; at >= 0 && last.at - samples[at].at <= seconds + 0.5; at--) first = samples[at];
  return Math.max(0, (of(last) - of(first)) / Math.max(0.001, last.at - first.at));
}

/** The same between each two samples, for a line. */
export function rates(of) {
  const found = [];
  for (let at = 1; at < state.samples.length; at++) {
    const [before, after] = [state.samples[at - 1], state.samples[at]];
    found.push(Math.max(0, (of(after) - of(before)) / Math.max(0.001, after.at - before.at)));
  }
  return found;
}
