// SQL as an editor sees it: words, strings, comments, numbers; and what may come at a place.

const WORDS = new Set(("select from where join inner left right full outer cross on and or not in is null like between exists union except all as case when then else end " +
  "group by having order limit distinct with cast interval date timestamp true false").split(" "));
export const FUNCTIONS = ["overlaps", "intersection", "duration", "gaps", "coverage", "count", "sum", "avg", "min", "max", "coalesce", "abs", "date_trunc"];
const TOKEN = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*(?:'|$))|("(?:[^"]|"")*(?:"|$))|(\d+(?:\.\d+)?)|([A-Za-z_][A-Za-z0-9_]*)|([\s\S])/g;
export const KEYWORDS = [...WORDS].map((word) => word.toUpperCase());

/** The parts of a text: `{text, kind, at}`, kind one of comment, string, name, number, keyword, function, word, or "". */
export function tokens(text) {
  const found = [];
  for (const match of text.matchAll(TOKEN)) {
    const [whole, comment, string, quoted, number, word] = match;
    const lower = word?.toLowerCase();
    const kind = comment ? "comment" : string ? "string" : quoted ? "name" : number ? "number" : word ? (WORDS.has(lower) ? "keyword" : FUNCTIONS.includes(lower) ? "function" : "word") : "";
    const last = found[found.length - 1];
    if (kind === "" && last?.kind === "") last.text += whole;
    else found.push({ text: whole, kind, at: match.index });
  }
  return found;
}

/** Aliases of the text: alias → relation, as far as FROM and JOIN tell. */
function aliasesOf(text, relations) {
  const found = new Map();
  const words = tokens(text).filter((token) => token.kind !== "comment" && token.text.trim());
  words.forEach((token, at) => {
    if (!/^(from|join)$/i.test(token.text) && token.text.trim() !== ",") return;
    const name = words[at + 1]?.text.replaceAll('"', "").toLowerCase();
    if (!relations[name]) return;
    let next = words[at + 2];
    if (/^as$/i.test(next?.text ?? "")) next = words[at + 3];
    found.set(next && (next.kind === "word" || next.kind === "name") ? next.text.replaceAll('"', "").toLowerCase() : name, name);
  });
  return found;
}

/**
 * What may stand at a place of the text: `{from, options: [{text, kind}]}`, the part from `from` on is replaced. `relations`: name → definition.
 */
export function completions(text, at, relations, views) {
  const before = text.slice(0, at);
  const inside = tokens(before).pop();
  if (inside && (inside.kind === "comment" || inside.kind === "string") && inside.at + inside.text.length === at) return { from: at, options: [] };
  const dotted = /([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z0-9_]*)$/.exec(before);
  if (dotted) {
    const relation = relations[aliasesOf(text, relations).get(dotted[1].toLowerCase())];
    const columns = (relation?.columns ?? []).map((column) => ({ text: quote(column.name), kind: column.type }));
    const intervals = Object.keys(relation?.intervals ?? {}).map((name) => ({ text: name, kind: "interval" }));
    return { from: at - dotted[2].length, options: starting(dotted[2], [...intervals, ...columns]) };
  }
  const word = /[A-Za-z_][A-Za-z0-9_]*$/.exec(before)?.[0] ?? "";
  if (!word) return { from: at, options: [] };
  const afterFrom = /\b(from|join)\s+[A-Za-z_]*$/i.test(before);
  const names = [...Object.keys(relations).map((name) => ({ text: name, kind: "relation" })), ...views.map((name) => ({ text: name, kind: "view" }))];
  const aliases = [...aliasesOf(text, relations).keys()].map((name) => ({ text: name, kind: "alias" }));
  const rest = [...aliases, ...FUNCTIONS.map((name) => ({ text: name, kind: "function" })), ...KEYWORDS.map((name) => ({ text: name, kind: "keyword" }))];
  return { from: at - word.length, options: starting(word, afterFrom ? names : [...rest, ...names]) };
}

const quote = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name}"`);

function starting(part, options) {
  const wanted = part.toLowerCase();
  const seen = new Set();
  return options.filter(({ text }) => {
    const lower = text.replaceAll('"', "").toLowerCase();
    if (!lower.startsWith(wanted) || lower === wanted || seen.has(text)) return false;
    return seen.add(text);
  }).slice(0, 12);
}

/** The place of a line and column, both from 1. */
export function offsetOf(text, { line, column }) {
  const lines = text.split("\n");
  return lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + Math.min(column - 1, (lines[line - 1] ?? "").length);
}
