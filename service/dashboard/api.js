// The service, as the pages ask it. The token is in sessionStorage: it goes with the tab, and no cookie carries it.

const KEY = "livejoin.token";

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

/** An answer that is a problem, or none: `status` 0 where the service could not be reached. */
export class Failure extends Error {
  constructor(message, status = 0, problem = null) {
    super(message);
    this.status = status;
    this.problem = problem;
    this.type = problem ? problem.type.replace("/problems/", "") : status ? "" : "unreachable";
  }
}

let refused = () => {};

/** Have this called whenever the service wants a token, or another one. */
export const onRefused = (call) => (refused = call);

export const headers = (more = {}) => {
  const text = token.get();
  return text ? { Authorization: `Bearer ${text}`, ...more } : more;
};

export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(`The service does not answer. Is it running? ${options.method ? "Try again once it is back." : "The page continues as soon as it is back."}`);
  }
  if (!answer.ok) throw await failureOf(answer);
  return answer;
}

export async function failureOf(answer) {
  let problem = null;
  try {
    problem = await answer.json();
  } catch {
    // not one of the service's own: a proxy's page
  }
  if (!problem || typeof problem.type !== "string") return new Failure(`The answer has the status ${answer.status}.`, answer.status);
  const failure = new Failure(problem.detail, answer.status, problem);
  if (failure.type === "unauthorized") refused(failure);
  return failure;
}

const LONG = /\d{16}/;
const exact = (_, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? BigInt(context.source) : value);

/** What JSON says, with a BigInt for an integer that no number has exactly. */
export const fromJson = (text) => (LONG.test(text) ? JSON.parse(text, exact) : JSON.parse(text));

/** The other way; browsers that tell the source of a number know `rawJSON` too. */
export const toJson = (value, indent) => JSON.stringify(value, (_, one) => (typeof one === "bigint" ? JSON.rawJSON(String(one)) : one), indent);

/** Values of JSON; rejects with a Failure. */
export const get = async (path, signal) => fromJson(await (await ask(path, { headers: { Accept: "application/json" }, signal })).text());

/** A text; rejects with a Failure. */
export const read = async (path, signal) => (await ask(path, { signal })).text();

export async function send(method, path, value, signal) {
  const body = value === undefined ? undefined : toJson(value);
  const kind = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await ask(path, { method, body, signal, headers: { Accept: "application/json", ...kind } });
  return answer.status === 204 ? null : answer.json();
}

/**
 * Server-sent events, read with `fetch`, which can send a token. `take(text)` gets whole events, all that came at once (see `parsed`).
 * Returns when the service ends the stream; rejects with a Failure.
 */
export async function events(path, take, signal) {
  const answer = await ask(path, { headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure("The connection to the service was lost.");
    }
    if (part.done) return;
    const text = rest + part.value;
    const end = text.lastIndexOf("\n\n");
    if (end < 0) {
      rest = text;
      continue;
    }
    rest = text.slice(end + 2);
    take(text.slice(0, end + 1));
  }
}

/** The events of a text that `events` gave: `{event, id, data}`, the data as text. */
export function* parsed(text) {
  for (const block of text.split("\n\n")) {
    const found = { event: "message", id: null, data: "" };
    for (const line of block.split("\n")) {
      if (line.startsWith("data: ")) found.data += line.slice(6);
      else if (line.startsWith("event: ")) found.event = line.slice(7);
      else if (line.startsWith("id: ")) found.id = line.slice(4);
    }
    if (found.data) yield found;
  }
}

/** Send a file as a body, with progress (which `fetch` does not tell): `told(bytes sent, bytes in all)`. */
export function upload(path, file, kind, told, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers({ "Content-Type": kind, Accept: "application/json" }))) request.setRequestHeader(name, value);
    let isSent = false;
    request.upload.onprogress = (event) => told(event.loaded, event.total);
    request.upload.onload = () => (isSent = true);
    request.onerror = () => reject(new Failure("The connection broke while the file was sent. Whether it was applied is not known: sending it again is safe, as rows with the same key are replaced."));
    request.onabort = () => reject(new Failure(isSent ? "Loading was cancelled after the file was sent, so it may have been applied." : "Loading was cancelled; nothing was applied."));
    request.onload = async () => {
      const answer = new Response(request.responseText, { status: request.status });
      if (request.status >= 400) reject(await failureOf(answer));
      else resolve(await answer.json());
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

export const name = (text) => encodeURIComponent(text);
