// Tables of rows that the service has told: numbers at the right, times in the reader's zone with UTC on hover, null as a dash.

import { toJson } from "./api.js";
import { fill, h } from "./dom.js";
import { isTime, localTime } from "./format.js";

export const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

/** One value as a cell; numbers as the service writes them, to be copied. */
export function cell(value) {
  if (value === null || value === undefined) return h("td.null", { title: "null" }, "–");
  if (isNumber(value)) return h("td.number", String(value));
  if (typeof value === "boolean") return h("td", String(value));
  if (typeof value === "object") return h("td.code", toJson(value));
  if (isTime(value)) return h("td.time", h("time", { dateTime: value, title: `${value} (UTC)` }, localTime(value)));
  return h("td", { title: value.length > 40 ? value : "" }, value);
}

/** The columns of rows; numbers have their heads at the right too. */
export function heads(names, rows) {
  const right = (name) => rows.length > 0 && rows.every((row) => row[name] === null || isNumber(row[name])) && rows.some((row) => row[name] !== null);
  return h("thead", {}, h("tr", {}, names.map((name) => h(`th${right(name) ? ".number" : ""}`, { scope: "col" }, name))));
}

/** Rows (objects) as a table that scrolls sideways within itself; `caption` is for screen readers. */
export function rowsTable(names, rows, caption) {
  const body = h("tbody", {}, rows.map((row) => h("tr", {}, names.map((name) => cell(row[name])))));
  return scroller(caption, h("table.rows", {}, h("caption.hidden", caption), heads(names, rows), body));
}

/** What may be wider than the page: it scrolls, by keyboard too. */
export const scroller = (label, content) => h("div.scroll", { tabIndex: 0, role: "group", "aria-label": label }, content);

/**
 * A table of things with a known set of columns: `[[head, cell of one, kind]]`, kept up to date by `update(things)`. A row with the same
 * `key` keeps its elements, so what has the focus keeps it.
 */
export function liveTable(caption, columns, key, none) {
  const body = h("tbody");
  const table = h(
    "table.list",
    {},
    h("caption.hidden", caption),
    h("thead", {}, h("tr", {}, columns.map(([head, , kind]) => h(`th${kind ? `.${kind}` : ""}`, { scope: "col" }, head || h("span.hidden", "actions"))))),
    body,
  );
  const place = h("div");
  const shown = new Map();
  const whole = scroller(caption, table);
  return {
    element: place,
    update(things) {
      if (!things.length) {
        shown.clear();
        body.replaceChildren();
        if (!place.firstChild || place.firstChild === whole) fill(place, none());
        return;
      }
      if (place.firstChild !== whole) fill(place, whole);
      const keys = new Set();
      things.forEach((thing, at) => {
        const id = String(key(thing));
        keys.add(id);
        let row = shown.get(id);
        if (!row) {
          row = h("tr", {}, columns.map(([, , kind], number) => h(number === 0 ? "th" : `td${kind ? `.${kind}` : ""}`, number === 0 ? { scope: "row" } : {})));
          shown.set(id, row);
        }
        columns.forEach(([, make], number) => put(row.children[number], make(thing)));
        if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
      });
      for (const [id, row] of shown) {
        if (!keys.has(id)) {
          row.remove();
          shown.delete(id);
        }
      }
    },
  };
}

function put(place, made) {
  if (made instanceof Node) {
    if (!place.firstChild || !place.firstChild.isEqualNode(made)) fill(place, made);
  } else if (place.textContent !== String(made)) {
    place.textContent = made;
  }
}
