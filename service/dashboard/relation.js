// A relation: its columns and intervals, its rows, and a place to drop a file on.

import { get, name as quoted } from "./api.js";
import { badge, empty, fill, h, panel, pending, say, trouble, write } from "./dom.js";
import { bytes, number } from "./format.js";
import { loader } from "./load.js";
import { to } from "./router.js";
import { may, state, watch } from "./store.js";
import { rowsTable, scroller } from "./table.js";

const PAGE = 50;

export function relation(main, { name, signal }) {
  const figures = h("span.figures");
  const body = h("div.view-body", {}, h("p.wait", "Loading …"));
  const messages = h("div");
  fill(main, h("div.title", {}, h("h1", name), figures), messages, body);
  let rows = -1;
  let reader = null;
  const open = () => pending(body, get(`/v1/relations/${quoted(name)}`, signal)).then((found) => {
    reader = rowsOf(name, found, { signal, altered: open });
    fill(body, may("write") && loader(name, { signal, loaded: () => reader.read() }), h("div.columns", {}, h("div.wide", {}, reader.element), h("div.narrow", {}, panel("Columns", columnsOf(found)), panel("Intervals", intervalsOf(found)), usedBy(name))));
  }).catch((error) => {
    if (error.name === "AbortError") return;
    if (error.type === "not-found") fill(body, empty(`There is no relation ${name}.`, h("a", { href: to.overview() }, "Go to the overview")));
    else fill(body, trouble(error));
    if (error.status === 0) setTimeout(() => !signal.aborted && open(), 2000);
  });
  open();
  watch(({ status }) => {
    if (!status) return;
    const one = status.relations[name];
    write(figures, one ? `${number(one.rows)} rows · ${bytes(one.bytes)}` : "");
    if (one && rows >= 0 && one.rows !== rows) reader?.stale();
    if (one && messages.firstChild) { // there is another one
      fill(messages);
      open();
    } else if (!one && rows >= 0) {
      say(`The relation ${name} has been dropped.`);
      fill(messages, h("p.message", { role: "alert" }, `The relation ${name} has been dropped. It is shown as it was before.`));
    }
    rows = one ? one.rows : -1;
  }, signal);
}

/** `altered()` is called where rows have other columns than the definition. */
function rowsOf(name, definition, { signal, altered }) {
  const place = h("div");
  const note = h("p.note", { role: "status" });
  const columns = definition.columns.map((column) => column.name);
  let [next, at] = [null, 0];
  const more = h("button", { type: "button", onclick: () => page(next) }, "Next page");
  const first = h("button", { type: "button", onclick: () => page(null) }, "First page");
  const element = panel("Rows", h("div", {}, note, place), first, more);

  async function page(cursor) {
    try {
      const answer = await pending(place, get(`/v1/relations/${quoted(name)}/rows?limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, signal));
      if (answer.rows.length && Object.keys(answer.rows[0]).length !== columns.length) {
        altered();
        return;
      }
      at = cursor ? at + PAGE : 0;
      next = answer.next;
      more.disabled = next === null;
      first.textContent = cursor ? "First page" : "Read again";
      fill(place, answer.rows.length ? rowsTable(columns, answer.rows, `Rows of ${name}`) : empty("No rows yet.", "Drop a file above, or post changes: ", h("code", `livejoin load ${name} FILE`)));
      write(note, answer.rows.length ? `rows ${number(at + 1)}–${number(at + answer.rows.length)} at version ${number(answer.version)}` : "");
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(place, trouble(error));
    }
  }
  page(null);
  return {
    element,
    read: () => page(null),
    stale: () => {
      if (at === 0 && element.querySelectorAll("tbody tr").length < PAGE) page(null);
      else write(note, `${note.textContent.split(";")[0]}; there are newer rows`);
    },
  };
}

function columnsOf(definition) {
  const key = new Set(definition.key);
  return scroller("Columns", h("table.list", {}, h("caption.hidden", "Columns"), h("thead", {}, h("tr", {}, ["column", "type", ""].map((head) => h("th", { scope: "col" }, head || h("span.hidden", "properties"))))),
    h("tbody", {}, definition.columns.map((column) => h("tr", {}, h("th", { scope: "row" }, column.name), h("td.code", column.precision ? `decimal(${column.precision},${column.scale})` : column.type, column.zone ? ` ${column.zone}` : ""), h("td", {}, key.has(column.name) ? badge("key", "accent") : null, column.nullable ? badge("nullable") : null))))));
}

function intervalsOf(definition) {
  const found = Object.entries(definition.intervals ?? {});
  if (!found.length) return empty("No intervals.", "An interval over two columns makes overlaps fast.");
  return h("ul.plain", {}, found.map(([name, one]) => h("li", {}, h("strong", name), " ", h("code", one.at ? `at ${one.at}` : `${(one.bounds ?? "[)")[0]}${one.start}, ${one.end}${(one.bounds ?? "[)")[1]}`))));
}

function usedBy(name) {
  const place = h("div");
  get("/v1/views").then(({ views }) => {
    const found = views.filter((view) => view.shape.aliases.some((alias) => alias.relation === name));
    fill(place, found.length ? h("ul.plain", {}, found.map((view) => h("li", {}, h("a", { href: to.view(view.name) }, view.name)))) : empty("No view reads it.", h("a", { href: to.query(`SELECT * FROM ${name} a JOIN … b ON overlaps(a.…, b.…)`) }, "Write one")));
  }).catch(() => state.link === "live" && fill(place, h("p.note", "The views are not known.")));
  return panel("Views that read it", place);
}
