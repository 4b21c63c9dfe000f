// A view: its picture, its rows, its changes as they come, its plan.

import { get, name as quoted, send, toJson } from "./api.js";
import { changes } from "./changes.js";
import { badge, empty, fill, h, panel, pending, say, trouble, write } from "./dom.js";
import { number, plural } from "./format.js";
import { hypergraph } from "./graph.js";
import { map } from "./map.js";
import { planCard, promise } from "./plan.js";
import { to } from "./router.js";
import { may, state, watch } from "./store.js";
import { rowsTable } from "./table.js";
import { timeline } from "./timeline.js";

const PAGE = 50, EVERY = 2000;

export function view(main, { name, signal }) {
  const heading = h("div.title", {}, h("h1", name));
  const messages = h("div.messages");
  const body = h("div.view-body", {}, h("p.wait", "Loading …"));
  fill(main, heading, messages, body);
  const stop = new AbortController();
  const shown = AbortSignal.any([signal, stop.signal]);
  const again = () => {
    stop.abort();
    view(main, { name, signal });
  };
  const page = new Page(name, heading, messages, body, shown, again);
  page.open();
  addEventListener("livejoin:back", () => page.back(), { signal: shown });
}

class Page {
  /** `again()` shows the view anew, in place of this page. */
  constructor(name, heading, messages, body, signal, again) {
    Object.assign(this, { name, heading, messages, body, signal, again, said: new Map(), picture: null, dropped: false });
  }

  /** A message that stays until the same place has another one, or none. */
  tell(place, message) {
    const before = this.said.get(place);
    if (message === null) {
      before?.remove();
      this.said.delete(place);
      return;
    }
    if (before?.textContent === message.textContent) return;
    before?.remove();
    this.said.set(place, message);
    this.messages.append(message);
  }

  failed(place, error) {
    if (error === null) {
      this.tell(place, null);
    } else if (error.type === "not-found" && this.found) {
      if (!this.dropped) say(`The view ${this.name} has been dropped.`);
      this.dropped = true;
      this.tell(place, null);
      this.tell("dropped", h("p.message", { role: "alert" }, `The view ${this.name} has been dropped. It is shown as of version ${number(this.found.version)}.`));
    } else if (error.status === 0) {
      this.tell(place, null); // the bar says that there is no connection
    } else {
      this.tell(place, trouble(error));
    }
  }

  async open() {
    if (this.opening) return;
    this.opening = true;
    clearTimeout(this.retry);
    try {
      const found = await pending(this.body, get(`/v1/views/${quoted(this.name)}`, this.signal));
      this.found = found;
      this.tell("open", null);
      if (found.state === "building") this.building(found);
      else await this.show(found);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.type === "not-found") fill(this.body, empty(`There is no view ${this.name}.`, h("a", { href: to.query() }, "Write a query and register it")));
      else {
        if (!this.found) fill(this.body);
        this.tell("open", trouble(error));
      }
      if (error.status === 0) this.retry = setTimeout(() => !this.signal.aborted && this.open(), 2000);
    } finally {
      this.opening = false;
    }
  }

  back() {
    if (this.found && !this.dropped && this.picture) this.picture.refresh();
    if (!this.found) this.open();
  }

  building(found) {
    const bar = h("progress", { max: 1, value: found.progress, "aria-label": "Building" });
    fill(this.body, h("div.empty", {}, h("p.lead", "The view is being built."), bar, h("p", "Changes are accepted meanwhile. This page continues when the view is live.")));
    this.title(found);
    setTimeout(() => !this.signal.aborted && this.open(), 500);
  }

  title(found) {
    const drop = h("button.danger.plain", { type: "button", hidden: !may("admin"), onclick: () => this.drop() }, "Drop …");
    const state = found.state === "live" ? badge("live", "good") : badge(found.state, found.state === "failed" ? "bad" : "fair");
    fill(this.heading, h("h1", this.name), state, promise(found.plan.guarantee), h("span.figures", {}, this.figures ??= h("span")), h("span.grow"), drop);
  }

  async drop() {
    if (!confirm(`Drop the view ${this.name}? Its relations are kept; its followers are notified.`)) return;
    try {
      await send("DELETE", `/v1/views/${quoted(this.name)}`);
      location.hash = to.overview();
    } catch (error) {
      this.tell("drop", trouble(error));
    }
  }

  async show(found) {
    this.title(found);
    if (found.problem) this.tell("problem", trouble(Object.assign(new Error(found.problem.detail), { problem: found.problem })));
    const dimensions = found.shape.dimensions.length;
    const options = { signal: this.signal, failed: (error) => this.failed("picture", error) };
    const parts = [];
    if (found.state === "live" && dimensions) {
      this.picture = dimensions === 1 ? timeline(found, options) : map(found, options);
      parts.push(panel(dimensions === 1 ? "Timeline" : "Map", this.picture.element));
    }
    this.plan = h("div", {}, planCard(found.plan, found.statistics));
    this.rows = h("div");
    this.graph = h("div");
    const right = [panel("Plan", h("div", {}, this.plan, this.graph)), panel("Definition", definition(found.definition))];
    const left = [];
    if (found.state === "live") {
      this.more = h("button", { type: "button", onclick: () => this.next() }, "Next page");
      this.first = h("button", { type: "button", onclick: () => this.read() }, "Newest version");
      left.push(panel("Rows", h("div", {}, (this.rowsNote = h("p.note", { role: "status" })), this.rows), this.first, this.more));
      this.follower = changes(found, { signal: this.signal, news: () => this.news(), note: (text) => this.tell("changes", h("p.message", { role: "status" }, text)), failed: (error) => this.failed("changes", error) });
      left.push(panel("Changes", this.follower.element));
    }
    await pending(this.body, Promise.all([this.picture?.loaded, this.more && this.read()])); // all at once: nothing moves afterwards
    if (this.signal.aborted) return;
    fill(this.body, parts, h("div.columns", {}, h("div.wide", {}, left), h("div.narrow", {}, right)));
    if (!dimensions) this.explain(found);
    const timer = setInterval(() => this.measure(), EVERY);
    this.signal.addEventListener("abort", () => clearInterval(timer));
    watch(({ status }) => status && this.told(status), this.signal);
  }

  told(status) {
    const one = status.views[this.name];
    if (one) write(this.figures, one.feed ? `${plural(one.feed.changes, "changed row")} · ${plural(one.feed.subscribers, "follower")}` : "not followed");
  }

  news() {
    this.picture?.refresh();
    if (this.cursor === undefined && !this.paged) this.readSoon();
  }

  /** The first page follows the changes, now and then. */
  readSoon() {
    if (this.reading || this.paged) {
      this.stale = true;
      return;
    }
    this.reading = setTimeout(() => {
      this.reading = 0;
      this.read();
    }, 700);
  }

  /** What was measured; and whether it is still the same view. */
  async measure() {
    if (state.link !== "live" || document.hidden) return;
    try {
      const found = await get(`/v1/views/${quoted(this.name)}`, this.signal);
      const isOther = (of) => toJson(of(found)) !== toJson(of(this.found));
      if (this.dropped || isOther((one) => one.state) || isOther((one) => one.definition)) return this.again();
      this.found = found;
      fill(this.plan, planCard(found.plan, found.statistics));
      if (this.said.has("picture")) this.picture.refresh(); // what was refused may go well by now
      if (this.said.has("rows") && !this.paged) this.read();
    } catch (error) {
      if (error.type === "not-found") this.failed("picture", error);
    }
  }

  async read() {
    this.paged = false;
    await this.page("");
  }

  async next() {
    this.paged = true;
    await this.page(`&cursor=${encodeURIComponent(this.cursorText)}`);
  }

  async page(cursor) {
    try {
      const answer = await pending(this.rows, get(`/v1/views/${quoted(this.name)}/rows?limit=${PAGE}${cursor}`, this.signal));
      const columns = this.found.shape.columns.map((column) => column.name);
      this.cursorText = answer.next;
      this.at = cursor ? this.at + PAGE : 0;
      this.more.disabled = answer.next === null;
      this.first.hidden = !this.paged;
      fill(this.rows, answer.rows.length ? rowsTable(columns, answer.rows, `Rows of ${this.name}`) : empty("No rows.", "Rows appear here as soon as rows of its relations match."));
      write(this.rowsNote, answer.rows.length ? `rows ${number(this.at + 1)}–${number(this.at + answer.rows.length)} at version ${number(answer.version)}${answer.next === null ? ", the last" : ""}` : `version ${number(answer.version)}`);
      this.tell("rows", null);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.type === "snapshot-expired") this.tell("rows", h("p.message", "The version of this page is no longer kept. ", h("button", { type: "button", onclick: () => this.read() }, "Show the newest")));
      else this.failed("rows", error);
    }
  }

  async explain(found) {
    try {
      const explained = await send("POST", "/v1/explain", found.definition, this.signal);
      if (explained.natural && Object.keys(explained.natural.variables).length) fill(this.graph, h("h3", "Hypergraph"), hypergraph(explained.natural));
    } catch {
      // the plan is there; what else could be said of it is not
    }
  }
}

function definition(given) {
  if (!given.sql) return h("pre.code", { tabIndex: 0 }, toJson(given, 2));
  return h("div", {}, h("pre.code.sql", { tabIndex: 0 }, given.sql.replace(/\s+(FROM|JOIN|LEFT JOIN|WHERE|GROUP BY|ON|AND|UNION)\b/g, "\n$1")), h("p", {}, h("a", { href: to.query(given.sql) }, "Open in the query page")));
}
