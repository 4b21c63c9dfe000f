// For who looks after the service: what is held, who reads and follows, where changes come from, what went wrong, who may do what.

import { get, name as quoted, send } from "./api.js";
import { badge, empty, fill, h, panel, trouble } from "./dom.js";
import { ago, bytes, duration, number } from "./format.js";
import { to } from "./router.js";
import { state, watch } from "./store.js";
import { liveTable } from "./table.js";

const time = (text) => (text ? h("time", { dateTime: text, title: `${text} (UTC)` }, ago(text)) : "–");

export function operations(main, { signal }) {
  const pins = liveTable("Pinned versions", [
    ["version", (one) => number(one.version)],
    ["behind", (one) => number(one.behind), "number"],
    ["readers", (one) => number(one.readers), "number"],
    ["reading", (one) => one.reading || "–"],
    ["idle", (one) => duration(Math.floor(one.idle_seconds)), "number"],
    ["age", (one) => duration(Math.floor(one.age_seconds)), "number"],
  ], (one) => one.version, () => empty("No reader holds a version.", "A reader keeps its version while it reads, a page of rows for a minute."));
  const feeds = liveTable("Feeds and followers", [
    ["view", ([name]) => h("a", { href: to.view(name) }, name)],
    ["followers", ([, { feed }]) => number(feed.subscribers), "number"],
    ["behind", ([, { feed }]) => (feed.lag ? `${number(feed.lag)} versions` : "–"), "number"],
    ["changes", ([, { feed }]) => number(feed.changes), "number"],
    ["kept", ([, { feed }]) => number(feed.rows), "number"],
    ["memory", ([, { feed }]) => bytes(feed.bytes), "number"],
  ], ([name]) => name, () => empty("No view can be followed."));
  const readers = liveTable("Readers", [
    ["reader", (one) => one.name],
    ["view", (one) => h("a", { href: to.view(one.view) }, one.view)],
    ["version", (one) => number(one.version), "number"],
    ["behind", (one) => (one.behind ? `${number(one.behind)} versions` : "–"), "number"],
    ["idle", (one) => duration(Math.floor(one.idle_seconds)), "number"],
  ], (one) => `${one.name} ${one.view}`, () => empty("No readers give their name.", "Queries on Spark do, and requests with the header Livejoin-Reader."));
  const sources = liveTable("Sources", [
    ["source", (one) => one.name],
    ["run", (one) => one.run ?? "–"],
    ["last epoch", (one) => number(one.epoch), "number"],
    ["version", (one) => number(one.version), "number"],
    ["when", (one) => time(one.time), "number"],
  ], (one) => one.name, () => empty("No sources.", "A client that numbers its batches (source, epoch) is listed here."));
  const problems = liveTable("Recent problems", [
    ["when", (one) => time(one.time)],
    ["problem", (one) => h("a", { href: `/problems/${one.type}`, target: "_blank", rel: "noopener" }, one.type)],
    ["times", (one) => number(one.times), "number"],
    ["request", (one) => h("span.code", `${one.method} ${one.path}`)],
    ["what was said", (one) => one.detail],
    ["id", (one) => h("span.code", one.request_id)],
  ], (one) => `${one.type} ${one.method} ${one.path}`, () => empty("No problems.", "Requests that are refused, or fail, are listed here with the service's answer."));
  const figures = h("dl.figures-list");
  const restricted = h("div");
  const tokens = tokenPanel(signal);
  fill(main, h("div.title", {}, h("h1", "Operations")), restricted, panel("Service", figures), panel("Recent problems", problems.element),
    h("div.columns", {}, h("div.wide", {}, panel("Feeds and followers", feeds.element), panel("Readers", readers.element), panel("Sources", sources.element), panel("Pinned versions", pins.element)), h("div.narrow", {}, tokens.element)));
  watch(({ status }) => {
    if (!status) return;
    pins.update(status.pins ?? []);
    feeds.update(Object.entries(status.views).filter(([, one]) => one.feed));
    readers.update(status.readers);
    problems.update(status.problems ?? []);
    show(figures, status);
    if (!status.token.covers_all || status.token.scope !== "admin") {
      if (!restricted.firstChild) fill(restricted, h("p.message", `The token ${status.token.name} has the scope ${status.token.scope}: pinned versions are shown only to tokens for all relations and views, problems and tokens only to admins.`));
    }
    tokens.told(status);
  }, signal);
  const ask = () => !document.hidden && get("/v1/sources", signal).then((told) => sources.update(told.sources)).catch(() => {});
  ask();
  const timer = setInterval(ask, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function show(place, status) {
  const { figures, memory, disk } = status;
  const told = [
    ["State", status.state], ["Version", number(status.version)], ["Timeline", number(status.timeline)], ["Up", duration(Math.floor(status.uptime_seconds))], ["Synchronous", status.synchronous],
    ["Batches waiting", number(figures.waiting_batches)], ["Cursors", number(figures.cursors)], ["Resident memory", bytes(memory.resident)], ["Old versions", bytes(memory.old_versions)], ["Bodies", bytes(memory.bodies)],
    ["Log", bytes(disk.log)], ["Snapshots", bytes(disk.snapshots)], ["Last snapshot", disk.snapshot ? ago(disk.snapshot.time) : "none yet"], ["Disk free", `${bytes(disk.free)} of ${bytes(disk.size)}`],
  ];
  if (place.children.length !== told.length) fill(place, told.map(([name]) => h("div", {}, h("dt", name), h("dd"))));
  told.forEach(([, text], at) => {
    const value = place.children[at].lastChild;
    if (value.textContent !== text) value.textContent = text;
  });
}

function tokenPanel(signal) {
  const place = h("div.stack");
  const fault = h("div");
  const made = h("div");
  const table = liveTable("Tokens", [
    ["name", (one) => one.name],
    ["scope", (one) => badge(one.scope, one.scope === "admin" ? "accent" : "")],
    ["for", (one) => (one.relations.includes("*") && one.views.includes("*") ? "everything" : [...one.relations, ...one.views].join(", "))],
    ["expires", (one) => (one.expires ? h("time", { dateTime: one.expires, title: `${one.expires} (UTC)` }, one.expires.slice(0, 10)) : "never")],
    ["", (one) => (one.name === state.status?.token.name ? badge("yours") : h("button.danger.plain", { type: "button", "aria-label": `Revoke ${one.name}`, onclick: () => revoke(one.name) }, "Revoke"))],
  ], (one) => one.name, () => empty("No tokens."));
  const name = h("input", { id: "token-name", required: true, autocomplete: "off", size: 14, pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,62}" });
  const scope = h("select", { id: "token-scope" }, ["read", "write", "admin"].map((one) => h("option", one)));
  const form = h("form.row", { onsubmit: (event) => { event.preventDefault(); create(); } }, h("span.pair", {}, h("label", { htmlFor: "token-name" }, "Name"), name), h("span.pair", {}, h("label", { htmlFor: "token-scope" }, "Scope"), scope), h("button", { type: "submit" }, "Create"));
  let asked = false;

  async function list() {
    try {
      table.update((await get("/v1/tokens", signal)).tokens);
    } catch (error) {
      if (error.name !== "AbortError") fill(fault, trouble(error));
    }
  }

  async function change(work) {
    fill(fault);
    try {
      await work();
      await list();
    } catch (error) {
      if (error.name !== "AbortError") fill(fault, trouble(error));
    }
  }

  const create = () => change(async () => {
    const found = await send("POST", "/v1/tokens", { name: name.value.trim(), scope: scope.value });
    form.reset();
    fill(made, h("p.message.good", { role: "status" }, `The token ${found.name}, shown this once: `, h("code", found.token)));
  });

  const revoke = (which) => confirm(`Revoke the token ${which}? Requests with it are then refused.`) && change(() => send("DELETE", `/v1/tokens/${quoted(which)}`));

  return {
    element: panel("Tokens", place),
    told(status) {
      if (asked) return;
      asked = true;
      if (!status.token.needed) fill(place, empty("Token mode is off.", "The service answers only this machine. The first token turns it on: ", h("code", "livejoin token create NAME --scope admin --data DIR")));
      else if (status.token.scope !== "admin" || !status.token.covers_all) fill(place, empty("For admins.", `Your token has the scope ${status.token.scope}.`));
      else {
        fill(place, table.element, form, made, fault);
        list();
      }
    },
  };
}
