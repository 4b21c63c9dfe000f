// A query: explained, registered as a view, or run once.

import { Failure, ask, fromJson, get, name as quoted, send, toJson } from "./api.js";
import { empty, fill, h, panel, pending, say, trouble } from "./dom.js";
import { editor } from "./editor.js";
import { number } from "./format.js";
import { hypergraph } from "./graph.js";
import { planCard, planTable } from "./plan.js";
import { to } from "./router.js";
import { offsetOf } from "./sql.js";
import { state } from "./store.js";
import { rowsTable } from "./table.js";

const MOST = 1000; // rows that are shown of a query
const NAME = /^[a-z_][a-z0-9_]{0,62}$/;
const KEPT = "livejoin.sql";

export function query(main, { options, signal }) {
  const relations = {};
  const result = h("div.result", {}, empty("Write a SELECT over relations.", "Explain shows how it would be kept up to date, and at what cost. Register makes it a view."));
  const fault = h("div", { id: "sql-fault" });
  const given = options.get("sql") ?? sessionStorage.getItem(KEPT) ?? "";
  const sql = editor({ value: given, names: () => ({ relations, views: Object.keys(state.status?.views ?? {}) }), run: explain, changed: () => { fill(fault); sql.describe(null); sessionStorage.setItem(KEPT, sql.text); }, signal });
  const viewName = h("input", { id: "view-name", placeholder: "name of the view", autocomplete: "off", spellcheck: false, "aria-describedby": "name-fault", size: 18 });
  const nameFault = h("p.fault", { id: "name-fault", role: "alert" });
  const run = h("button", { type: "button", onclick: once }, "Run once");
  const form = h("form.query-form", { onsubmit: (event) => { event.preventDefault(); register(); } }, sql.element, fault,
    h("div.row", {}, h("button.primary", { type: "button", onclick: explain, title: "Ctrl+Enter" }, "Explain"), run, h("span.grow"), h("span.pair", {}, h("label", { htmlFor: "view-name" }, "View"), viewName), h("button", { type: "submit" }, "Register")), nameFault);
  fill(main, h("div.title", {}, h("h1", "Query"), h("span.figures", "Ctrl+Enter explains · Ctrl+Space completes")), panel("SQL", form), result);
  get("/v1/relations", signal).then((told) => {
    for (const one of told.relations) relations[one.name] = one;
    if (!sql.text) sql.text = suggestion(relations);
  }).catch(() => {});
  if (options.get("sql") && !options.get("sql").includes("…")) explain();

  async function attempt(work) {
    fill(fault);
    fill(nameFault);
    sql.mark([]);
    try {
      await pending(result, work());
    } catch (error) {
      if (error.name !== "AbortError") refuse(error);
    }
  }

  /** A refusal stands at its places in the text, in words. */
  function refuse(error) {
    const places = (error.problem?.complaints ?? [error.problem ?? {}]).flatMap((one) => one.position ?? []);
    if (places.length) {
      sql.mark(places.map((one) => offsetOf(sql.text, one)));
      sql.focus();
    }
    fill(fault, trouble(error));
    sql.describe("sql-fault");
  }

  function explain() {
    return attempt(async () => {
      const found = await send("POST", "/v1/explain", { sql: sql.text }, signal);
      const live = Object.entries(found.measured ?? {});
      const natural = found.natural && Object.keys(found.natural.variables).length ? panel("Hypergraph", hypergraph(found.natural)) : null;
      const measured = live.length ? h("p.note", "Measured in the view ", live.map(([name], at) => [at ? ", " : "", h("a", { href: to.view(name) }, name)])) : null;
      const plan = panel("Plan", h("div", {}, planCard(found.plan, live.length ? live[0][1] : null), measured));
      fill(result, natural ? h("div.columns.even", {}, h("div", {}, plan), h("div", {}, natural)) : plan, panel(found.alternatives.length ? "Alternatives" : "No alternative", planTable([found.plan, ...found.alternatives])));
      say(`Plan: ${found.plan.algorithm}, ${found.plan.guarantee}. ${found.alternatives.length} alternatives.`);
    });
  }

  function register() {
    const name = viewName.value.trim();
    if (!NAME.test(name)) {
      fill(nameFault, name ? `${name} cannot be a name: use lower-case letters, digits and _, and begin with a letter.` : "Give the view a name.");
      viewName.focus();
      return null;
    }
    return attempt(async () => {
      try {
        await send("PUT", `/v1/views/${quoted(name)}`, { sql: sql.text }, signal);
      } catch (error) {
        if (error.type !== "definition-differs") throw error;
        fill(nameFault, `There is a view ${name} with another definition. Choose another name, or drop it first.`);
        viewName.focus();
        return;
      }
      location.hash = to.view(name);
    });
  }

  function once() {
    return attempt(async () => {
      const begun = performance.now();
      const { version, rows, more, columns } = await rowsOf(sql.text, signal);
      const seconds = ((performance.now() - begun) / 1000).toFixed(2);
      fill(result, panel("Rows", h("div", {}, h("p.note", `${number(rows.length)} rows${more ? ", the first of more" : ""} in ${seconds} s at version ${version}`), rows.length ? rowsTable(columns, rows, "Rows of the query") : empty("No rows."))));
      say(`${rows.length} rows.`);
    });
  }
}

/** The first rows of a query that is run once. */
async function rowsOf(sql, signal) {
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort());
  const answer = await ask("/v1/query", { method: "POST", body: toJson({ sql }), headers: { "Content-Type": "application/json", Accept: "application/jsonl" }, signal: stop.signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const rows = [];
  let rest = "";
  let more = false;
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Failure("The answer broke off: the service has ended, or the query was stopped. Run it again.");
    });
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line && rows.length < MOST) rows.push(fromJson(line));
    if (rows.length >= MOST) {
      more = true;
      stop.abort();
      break;
    }
  }
  return { version: number(Number(answer.headers.get("Livejoin-Version"))), rows, more, columns: [...new Set(rows.flatMap(Object.keys))] };
}

/** A join of the relations that there are. */
function suggestion(relations) {
  const withInterval = Object.values(relations).filter((one) => Object.keys(one.intervals ?? {}).length);
  if (withInterval.length < 2) return "";
  const [a, b] = withInterval;
  return `SELECT *\nFROM ${a.name} a\nJOIN ${b.name} b ON overlaps(a.${Object.keys(a.intervals)[0]}, b.${Object.keys(b.intervals)[0]})`;
}
