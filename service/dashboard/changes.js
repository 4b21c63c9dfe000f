// The changes of a view as they come: followed with tokens, counted all, shown as far as somebody can read them.

import { Failure, events, fromJson, name as quoted } from "./api.js";
import { fill, h, write } from "./dom.js";
import { number, rate } from "./format.js";
import { cell, isNumber, scroller } from "./table.js";

const SHOWN = 40; // the newest
const EVERY = 250; // ms between two looks
const READABLE = 200; // a second; beyond it the list is a sample
const OPS = /^event: (insert|delete|progress|error)$/gm;

/** `{element}`; `news()` is called for changes that have come, `note(text)` for what a reader should know, `failed(error)` for what ends it. */
export function changes(view, { signal, news, note, failed }) {
  const heading = h("p.note", { role: "status" }, "Following …");
  const body = h("tbody");
  const columns = view.shape.columns.map((column) => column.name);
  const table = h("table.rows", {}, h("caption.hidden", "The newest changes"), h("thead", {}, h("tr", {}, [h("th.number", { scope: "col" }, "version"), h("th", { scope: "col" }, h("span.hidden", "change")), columns.map((name) => h("th", { scope: "col" }, name))].flat())), body);
  const list = h("div", {}, h("p.empty.small", "The next change shows here at once."));
  const element = h("div.changes", {}, heading, list);
  const counted = { inserts: 0, deletes: 0, since: performance.now(), recent: [] };
  let waiting = []; // texts of events, the newest last
  let token = null;
  let dirty = false;
  let fresh = 0;

  function take(text) {
    let rows = 0;
    for (const [, op] of text.matchAll(OPS)) {
      if (op === "insert") counted.inserts++;
      else if (op === "delete") counted.deletes++;
      else continue;
      rows++;
    }
    fresh += rows;
    const id = text.lastIndexOf("\nid: ");
    if (id >= 0) token = text.slice(id + 5, text.indexOf("\n", id + 5));
    else if (text.startsWith("id: ")) token = text.slice(4, text.indexOf("\n"));
    if (text.includes("event: error\n")) {
      const problem = JSON.parse(text.slice(text.lastIndexOf("data: ") + 6)).problem;
      throw new Failure(problem.detail, problem.status, problem);
    }
    if (rows) {
      waiting.push(text);
      if (waiting.length > 20) waiting = waiting.slice(-10); // each is a part of what came; older ones would not be seen
      dirty = true;
      news();
    }
  }

  function show() {
    const now = performance.now();
    counted.recent.push([now, fresh]);
    fresh = 0;
    while (counted.recent.length && now - counted.recent[0][0] > 2000) counted.recent.shift();
    const perSecond = counted.recent.reduce((sum, [, count]) => sum + count, 0) / 2;
    if (!token) return;
    const total = counted.inserts + counted.deletes;
    const sampled = perSecond > READABLE ? ` Too many to show: the list is a sample of ${SHOWN} of them.` : "";
    write(heading, total ? `${rate(perSecond)} changes per second; since this page was opened, ${number(counted.inserts)} rows were added and ${number(counted.deletes)} removed.${sampled}` : "Following: nothing has changed since this page was opened.");
    if (!dirty) return;
    dirty = false;
    const records = newest(waiting);
    waiting = [];
    if (!table.isConnected) {
      columns.forEach((name, at) => table.tHead.rows[0].cells[at + 2].classList.toggle("number", records.every(({ row }) => isNumber(row[name]))));
      fill(list, scroller("The newest changes", table));
    }
    const rows = records.map((record) =>
      h(`tr.${record.op}`, {}, h("td.number", number(record.version)), h("td.op", { title: record.op }, record.op === "insert" ? "+" : "−"), columns.map((name) => cell(record.row[name]))));
    body.prepend(...rows);
    while (body.children.length > SHOWN) body.lastChild.remove();
  }

  const timer = setInterval(show, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));

  async function follow() {
    let wait = 250;
    while (!signal.aborted) {
      try {
        const path = `/v1/views/${quoted(view.name)}/changes`;
        if (!token) {
          await events(`${path}?limit=1&wait=0`, take, signal); // a token at once: a connection that breaks before the first change resumes too
          news(); // what came before the token is read, not followed
        }
        await events(`${path}?since=${encodeURIComponent(token)}`, (text) => { wait = 250; take(text); }, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (["token-expired", "reader-too-slow", "delta-too-large", "bad-token"].includes(error.type)) {
          token = null; // what lies between is not shown, but the rows are: they are read again
          note("Some changes came too fast to be followed, or while there was no connection, and are not listed. The rows are up to date.");
          news();
        } else if (["not-followed", "not-found", "view-failed", "unauthorized", "forbidden"].includes(error.type)) {
          if (error.type === "not-followed") note("This view keeps no changes (\"changes\": false), so they cannot be followed here.");
          else failed(error);
          write(heading, "");
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, 4000);
    }
  }
  follow();
  return { element };
}

/** The last records of texts of events, the newest first; only these are parsed. */
function newest(texts) {
  const found = [];
  for (let at = texts.length - 1; at >= 0 && found.length < SHOWN; at--) {
    const blocks = texts[at].split("\n\n");
    for (let number = blocks.length - 1; number >= 0 && found.length < SHOWN; number--) {
      const block = blocks[number];
      if (!block.startsWith("event: insert") && !block.startsWith("event: delete")) continue;
      found.push(fromJson(block.slice(block.indexOf("data: ") + 6)));
    }
  }
  return found;
}
