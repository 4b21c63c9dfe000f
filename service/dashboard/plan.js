// A plan: what is kept, what is promised, and what was measured.

import { badge, h } from "./dom.js";
import { bytes, duration, number } from "./format.js";
import { scroller } from "./table.js";

const PROMISES = {
  strict: "Each change costs polylogarithmic time in addition to the rows that it adds or removes, and rows are returned with a bounded delay.",
  delay: "Rows are returned with a bounded delay; a change may cost more.",
  "best-effort": "Correct, without a bound on the time of a change or between two rows.",
};

export const promise = (guarantee) => badge(guarantee, guarantee === "strict" ? "good" : guarantee === "delay" ? "fair" : "plain", PROMISES[guarantee] ?? "");

/** The card of a plan; `statistics` of a live view beside its bounds. */
export function planCard(plan, statistics = null) {
  const measured = statistics && {
    space: `${bytes(statistics.bytes)}${statistics.bytes_per_row ? `, ${digits(statistics.bytes_per_row)} B a row` : ""}`,
    update: statistics.update_seconds.p99 === null ? "–" : `${duration(statistics.update_seconds.p50)}, p99 ${duration(statistics.update_seconds.p99)}${statistics.steps_per_update ? `; ${digits(statistics.steps_per_update)} steps` : ""}`,
    delay: statistics.rows_read ? `${number(statistics.delay_steps.max)} steps at most${statistics.steps_per_row ? `, ${digits(statistics.steps_per_row)} a row` : ""}` : "–",
  };
  const what = { space: "Space", update: "A change", delay: "To the next row" };
  const names = Object.keys(plan.bounds);
  return h("div.plan", {},
    h("p.head", {}, h("strong", plan.algorithm), " ", promise(plan.guarantee)),
    h("p.class", plan.class),
    order(plan),
    names.length ? scroller("Bounds", h("table.bounds", {}, h("caption.hidden", "Bounds"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span.hidden", "of what")), h("th", { scope: "col" }, "bound"), measured && h("th", { scope: "col" }, "measured"))),
      h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, what[name] ?? name), h("td.code", printed(plan.bounds[name])), measured && h("td", measured[name] ?? "")))))) : null,
    plan.theorem && h("p.source", plan.theorem),
    plan.notes.length ? h("ul.notes", {}, plan.notes.map((note) => h("li", note))) : null);
}

/** As it is printed: terms such as O(log² n) stay on one line. */
const printed = (bound) => bound.replace(/\([^()]*\)/g, (term) => term.replaceAll(" ", "\u00a0")).replace(/\^([2-9])(?![\d.])/g, (_, digit) => "²³⁴⁵⁶⁷⁸⁹"[digit - 2]).replaceAll("O~", "Õ");

const digits = (value) => (value >= 100 ? number(Math.round(value)) : String(Number(value.toPrecision(2))));

/** The way of a row: the aliases in the order in which they are found. */
function order(plan) {
  if (!plan.order?.length) return null;
  return h("ol.order", { "aria-label": "Order in which a row is found" }, plan.order.map((alias, at) => h("li", {}, at ? h("span.arrow", { "aria-hidden": "true" }, "→") : null, h("span.alias", alias))));
}

/** Plans side by side; the first is the one that is taken. */
export function planTable(plans) {
  const row = (plan, at) => h("tr", at === 0 ? { className: "taken" } : {},
    h("th", { scope: "row" }, plan.algorithm, at === 0 ? badge("chosen", "accent") : null),
    h("td", {}, promise(plan.guarantee)),
    ...["space", "update", "delay"].map((name) => h("td.code", printed(plan.bounds[name] ?? "–"))),
    h("td", plan.theorem ?? "–"),
    h("td", plan.notes.join(" ")));
  return scroller("Plans", h("table.list.plans", {}, h("caption.hidden", "The plan and its alternatives"),
    h("thead", {}, h("tr", {}, ["algorithm", "promise", "space", "a change", "to the next row", "source", "notes"].map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, plans.map(row))));
}
