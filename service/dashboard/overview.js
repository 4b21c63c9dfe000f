// The overview: what there is, whether it is well, and how much happens.

import { get } from "./api.js";
import { badge, empty, fill, h, panel, svg, write } from "./dom.js";
import { ago, bytes, duration, number, plural, rate } from "./format.js";
import { promise } from "./plan.js";
import { to } from "./router.js";
import { rateOf, rates, watch } from "./store.js";
import { liveTable } from "./table.js";

export function overview(main, { signal }) {
  const tiles = {
    version: tile("Version"), changes: tile("Changes per second"), memory: tile("Memory"), disk: tile("Log and snapshot"), readers: tile("Readers"),
  };
  const warnings = h("ul.warnings", { "aria-label": "Warnings" });
  const views = liveTable("Views", [
    ["view", ([name]) => h("a", { href: to.view(name) }, name)],
    ["state", ([, one]) => stateOf(one)],
    ["promise", ([, one]) => promise(one.guarantee)],
    ["algorithm", ([, one]) => one.algorithm],
    ["changes", ([, one]) => (one.feed ? number(one.feed.changes) : "–"), "number"],
    ["a second", ([name, one]) => (one.feed ? rate(rateOf((sample) => sample.views[name] ?? 0)) : "–"), "number"],
    ["a change (p99)", ([, one]) => duration(one.update_p99_seconds), "number"],
    ["memory", ([, one]) => bytes(one.bytes), "number"],
    ["followers", ([, one]) => (one.feed ? number(one.feed.subscribers) : "–"), "number"],
  ], ([name]) => name, () => empty("No views yet.", "A view is a join that is kept up to date. ", h("a", { href: to.query() }, "Write one in SQL"), "."));
  const relations = liveTable("Relations", [
    ["relation", ([name]) => h("a", { href: to.relation(name) }, name)],
    ["rows", ([, one]) => number(one.rows), "number"],
    ["memory", ([, one]) => bytes(one.bytes), "number"],
    ["a row", ([, one]) => (one.rows ? bytes(one.bytes / one.rows) : "–"), "number"],
  ], ([name]) => name, () => empty("No relations yet.", "Load a file from a terminal: ", h("code", "livejoin load bookings bookings.csv --key id --interval stay=starts,ends")));
  const sources = liveTable("Sources", [
    ["source", (one) => one.name],
    ["last epoch", (one) => number(one.epoch), "number"],
    ["version", (one) => number(one.version), "number"],
    ["when", (one) => (one.time ? h("time", { dateTime: one.time, title: `${one.time} (UTC)` }, ago(one.time)) : "–"), "number"],
  ], (one) => one.name, () => empty("No sources.", "A client that numbers its batches is listed here, with the last number."));
  const parts = [warnings, h("div.tiles", {}, Object.values(tiles).map((one) => one.element)), panel("Views", views.element), h("div.columns", {}, h("div.wide", {}, panel("Relations", relations.element)), h("div.narrow", {}, panel("Sources", sources.element)))];
  const body = h("div.view-body", {}, h("p.wait", "Loading …"));
  fill(main, h("div.title", {}, h("h1", "Overview")), body);
  sources.update([]);
  watch(({ status }) => {
    if (!status) return;
    if (!warnings.isConnected) fill(body, parts);
    show(tiles, status);
    fillWarnings(warnings, status);
    views.update(Object.entries(status.views));
    relations.update(Object.entries(status.relations));
  }, signal);
  const ask = () => !document.hidden && get("/v1/sources", signal).then((told) => sources.update(told.sources)).catch(() => {});
  ask();
  const timer = setInterval(ask, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function tile(title) {
  const value = h("p.value", "–");
  const detail = h("p.detail");
  const extra = h("div.extra");
  return { element: h("section.tile", { "aria-label": title }, h("h2", title), value, detail, extra), value, detail, extra };
}

function show(tiles, status) {
  write(tiles.version.value, number(status.version));
  write(tiles.version.detail, `livejoin ${status.software.version}, up ${duration(Math.floor(status.uptime_seconds))}`);
  const perSecond = rateOf((sample) => sample.changes);
  write(tiles.changes.value, rate(perSecond));
  write(tiles.changes.detail, `${number(status.figures.changes)} in ${plural(status.figures.batches, "batch", "batches")}`);
  fill(tiles.changes.extra, spark(rates((sample) => sample.changes)));
  const memory = status.memory;
  write(tiles.memory.value, bytes(memory.resident));
  write(tiles.memory.detail, `relations ${bytes(memory.relations)}, views ${bytes(memory.views)}, old versions ${bytes(memory.old_versions)}`);
  fill(tiles.memory.extra, parts([["relations", memory.relations], ["views", memory.views], ["changes for followers", memory.changes], ["old versions", memory.old_versions]]));
  const disk = status.disk;
  write(tiles.disk.value, bytes(disk.log + disk.snapshots));
  write(tiles.disk.detail, disk.snapshot ? `last snapshot ${ago(disk.snapshot.time)}, version ${number(disk.snapshot.version)}` : `no snapshot yet: the log is short; ${bytes(disk.free)} free`);
  write(tiles.readers.value, number(status.figures.subscribers));
  write(tiles.readers.detail, `${plural(status.figures.subscribers, "follower")}, ${plural(status.figures.pins, "pinned version")}, ${plural(status.figures.waiting_batches, "batch", "batches")} waiting`);
}

function fillWarnings(place, status) {
  const text = JSON.stringify(status.warnings);
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  fill(place, status.warnings.map((one) => h("li", {}, h("span", { "aria-hidden": "true" }, "▲"), " ", one.text, one.view ? [" ", h("a", { href: to.view(one.view) }, "Look at it")] : null)));
}

function stateOf(one) {
  if (one.state === "building") return badge(`building ${Math.round(100 * one.progress)} %`, "fair");
  return badge(one.state, one.state === "live" ? "good" : "bad");
}

/** Two minutes as a line. */
function spark(values) {
  const [width, height] = [160, 28];
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(width - (values.length - 1 - at) * (width / 119)).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true", preserveAspectRatio: "none" });
  if (points.length > 1) picture.append(svg("polyline", { points: points.join(" ") }));
  return picture;
}

/** Shares of a whole as a bar. */
function parts(shares) {
  const whole = Math.max(1, shares.reduce((sum, [, size]) => sum + size, 0));
  return h("div.parts", { "aria-hidden": "true" }, shares.map(([name, size], at) => h(`span.series-${at + 1}`, { title: `${name} ${bytes(size)}`, style: { width: `${(100 * size) / whole}%` } })));
}
