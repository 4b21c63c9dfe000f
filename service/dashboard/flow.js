// The graph of views: relations, stored queries and views, what reads what, and what a change costs each reader.

import { get, name as quoted, toJson } from "./api.js";
import { empty, fill, h, panel, pending, svg, trouble, write } from "./dom.js";
import { bytes, duration, number, plural } from "./format.js";
import { layered } from "./layers.js";
import { to } from "./router.js";
import { state, watch } from "./store.js";
import { liveTable, scroller } from "./table.js";

const EVERY = 3000;
const NODE = 46, PORT = 18, WIDE = 250, SMALL = 132, GAP = 116, MARGIN = 14; // pixels; GAP has room for what a change costs
const WORDS = { relation: "relation", stored: "stored query", view: "view" };

export function flow(main, { signal }) {
  const body = h("div.view-body", {}, h("p.wait", "Loading …"));
  const fault = h("div");
  const again = h("button", { type: "button", onclick: () => count(views, 5000) }, "Count rows again");
  const picture = new Picture();
  const note = h("p.note");
  const table = liveTable("Relations, stored queries and views", [
    ["name", (node) => node.link ? h("a", { href: node.link }, node.name) : h("span.code", { id: `row${node.id}`, tabIndex: -1 }, node.name)],
    ["what", (node) => WORDS[node.kind]],
    ["rows", (node) => number(node.rows), "number"],
    ["memory", (node) => bytes(node.bytes), "number"],
    ["reads (a changed row costs)", (node) => node.inputs.filter((one) => !one.named).map((one) => `${one.label} ${duration(one.cost)}`).join(", ") || "–"],
    ["names in its query", (node) => node.inputs.filter((one) => one.named).map((one) => one.label).join(", ") || "–"],
    ["query", (node) => h("code", node.query || "–")],
  ], (node) => node.id, () => empty("Nothing to show."));
  const counts = new Map(); // {count, version} by `keyOf` a view, null if it has too many rows
  let views = null;
  let known = "";
  let counting = false;

  const parts = [panel("Graph", h("div.flow-body", {}, legend(), picture.element, note), again), panel("The same as a table", table.element)];
  fill(main, h("div.title", {}, h("h1", "Graph of views")), fault, body);

  function show() {
    const { status } = state;
    if (!status || !views) return;
    if (!views.length) {
      if (!body.querySelector(".empty")) fill(body, empty("No views yet.", "Views, and the queries that are stored for them, are drawn here beside the relations that they read. ", h("a", { href: to.query() }, "Write one in SQL"), "."));
      return;
    }
    if (!parts[0].isConnected) fill(body, parts);
    const nodes = nodesOf(views, status, counts);
    picture.draw(nodes);
    table.update(nodes);
    const unread = Object.keys(status.relations).filter((name) => !nodes.some((node) => node.id === name)).length;
    const versions = views.map((view) => counts.get(keyOf(view))?.version).filter((version) => version !== undefined);
    const counted = versions.length ? `Views store no rows: they were counted at version ${[...new Set([Math.min(...versions), Math.max(...versions)])].map(number).join(" to ")}. ` : "";
    write(note, counted + (unread ? `${plural(unread, "relation")} that no view reads ${unread === 1 ? "is" : "are"} left out.` : ""));
  }

  async function ask() {
    try {
      ({ views } = await pending(body, get("/v1/views", signal)));
      fill(fault);
      show();
      count(views.filter((view) => !counts.has(keyOf(view))), 200);
    } catch (error) {
      if (error.name !== "AbortError" && error.status !== 0) fill(fault, trouble(error));
    }
  }

  /** Views do not store their rows, so they are read to be counted: those of each view for at most so many milliseconds. */
  async function count(some, most) {
    if (counting) return;
    counting = again.disabled = true;
    for (const view of some.filter((one) => one.state === "live")) {
      if (signal.aborted) return;
      const found = await get(`/v1/views/${quoted(view.name)}/count`, AbortSignal.any([signal, AbortSignal.timeout(most)])).catch(() => null);
      counts.set(keyOf(view), found);
      show();
    }
    counting = again.disabled = false;
  }

  ask();
  watch(({ status }) => {
    if (!status) return;
    const names = JSON.stringify([Object.entries(status.views).map(([name, one]) => [name, one.state]), Object.keys(status.relations)]);
    if (known && names !== known) ask();
    known = names;
    show();
  }, signal);
  const timer = setInterval(() => !document.hidden && state.link === "live" && ask(), EVERY);
  const resized = new ResizeObserver(() => picture.arrange());
  resized.observe(picture.element);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    resized.disconnect();
  });
}

function legend() {
  const item = (kind, text) => h("li", {}, h(`span.key.${kind}`, { "aria-hidden": "true" }), text);
  return h("ul.legend", {}, item("relation", "relation"), item("stored", "query in FROM, stored"), item("view", "view, not stored"),
    item("reads", "is read: what a changed row costs on average"), item("named", "is named in the query"));
}

/** Relations that are read, stored queries, views; each after those that it reads. A view has the id `.name`, as relations may have that name. */
function nodesOf(views, status, counts) {
  const stored = new Map(views.flatMap((view) => view.stored.map((one) => [one.name, one])));
  const names = new Set(views.map((view) => view.name));
  const label = (id) => (stored.has(id) ? shortOf(id) : id);
  const inputs = (costs) => Object.entries(costs).map(([of, cost]) => ({ of, cost, label: label(of), named: false }));
  const read = new Set([...stored.values(), ...views].flatMap((one) => Object.keys(one.inputs)).filter((id) => !stored.has(id)));
  return [
    ...[...read].sort().map((name) => {
      const one = status.relations[name]; // none if the token does not cover it
      return { id: name, kind: "relation", name, link: to.relation(name), inputs: [], rows: one?.rows, bytes: one?.bytes };
    }),
    ...[...stored.values()].map((one) => ({
      id: one.name, kind: "stored", name: shortOf(one.name), title: one.class, inputs: inputs(one.inputs), rows: one.rows, bytes: one.bytes,
      query: one.query.replace(/"(~[0-9a-f]+)"/g, (_, id) => shortOf(id)),
    })),
    ...views.map((view) => ({
      id: `.${view.name}`, kind: "view", name: view.name, link: to.view(view.name), state: view.state, rows: counts.get(keyOf(view))?.count,
      bytes: status.views[view.name]?.bytes ?? view.statistics.bytes, query: view.definition.sql,
      inputs: [...inputs(view.inputs), ...view.reads.filter((name) => names.has(name)).map((name) => ({ of: `.${name}`, cost: null, label: name, named: true }))],
    })),
  ];
}

const keyOf = (view) => toJson([view.name, view.definition]); // a view may be replaced
const shortOf = (id) => id.slice(0, 7); // of 16 digits, which nobody reads

class Picture {
  constructor() {
    this.lines = svg("svg", { "aria-hidden": "true" });
    this.stage = h("div.flow", {}, this.lines);
    this.element = scroller("Graph of views; the table below has the same in words", this.stage);
    this.shown = new Map(); // {node, element, figures} by id
    this.edges = []; // {from, to, path, text}
  }

  draw(nodes) {
    const shape = JSON.stringify(nodes.map(({ id, state: its, inputs }) => [id, its, inputs.map((one) => one.of)]));
    if (shape !== this.shape) {
      const focused = this.stage.contains(document.activeElement) ? document.activeElement : null;
      this.shown = new Map(nodes.map((node) => [node.id, this.shown.get(node.id)?.node.state === node.state && this.shown.get(node.id) || made(node, this)]));
      this.shape = shape;
      this.width = null;
      fill(this.stage, this.lines, [...this.shown.values()].map((one) => one.element));
      if (focused?.isConnected) focused.focus({ preventScroll: true });
    }
    for (const node of nodes) {
      const one = this.shown.get(node.id);
      one.node = node;
      write(one.figures, figures(node));
    }
    this.arrange();
    for (const { to: id, from, text } of this.edges) {
      const cost = this.shown.get(id).node.inputs.find((one) => one.of === from).cost;
      write(text, cost === null ? "" : duration(cost));
    }
  }

  /** Places for all, if the width or the graph is another one. */
  arrange() {
    const width = this.element.clientWidth;
    if (!width || !this.shape || width === this.width) return;
    const isFirst = !this.edges.length;
    this.width = width;
    const nodes = [...this.shown.values()].map(({ node }) => ({ id: node.id, inputs: node.inputs, height: Math.max(NODE, PORT * node.inputs.length + 8) }));
    const { levels, height, places, edges } = layered(nodes);
    const gap = width < 600 ? GAP - 38 : GAP;
    const own = Math.max(SMALL, Math.min(WIDE, Math.floor((width - 2 * MARGIN - (levels - 1) * gap) / levels)));
    const left = (level) => MARGIN + level * (own + gap);
    const size = { width: left(levels - 1) + own + MARGIN, height: height + 2 * MARGIN };
    Object.entries(size).forEach(([name, value]) => {
      this.stage.style.setProperty(name, `${value}px`);
      this.lines.setAttribute(name, value);
    });
    const heights = new Map(nodes.map((node) => [node.id, node.height]));
    const middle = (id) => places.get(id).top + heights.get(id) / 2;
    for (const [id, { element }] of this.shown) {
      const { level, top } = places.get(id);
      for (const [name, value] of Object.entries({ left: left(level), top: top + MARGIN, width: own, height: heights.get(id) })) element.style.setProperty(name, `${value}px`);
    }
    const entering = Map.groupBy(edges, (edge) => edge.to);
    this.edges = [...entering].flatMap(([id, own_]) => {
      const from = (edge) => edge.passes.at(-1) ?? middle(edge.from);
      own_.sort((a, b) => from(a) - from(b));
      return own_.map((edge, at) => this.edge(edge, [left(places.get(edge.from).level) + own, middle(edge.from) + MARGIN], edge.passes.map((y, number_) => [left(places.get(edge.from).level + 1 + number_), y + MARGIN]), own,
        [left(places.get(id).level), middle(id) + MARGIN + PORT * (at - (own_.length - 1) / 2)]));
    });
    fill(this.lines, this.edges.map((edge) => edge.path), this.edges.map((edge) => edge.text));
    if (isFirst) { // of many views, show those of the relation that most read
      const readers = (id) => edges.filter((edge) => edge.from === id).length;
      const busiest = nodes.map((node) => node.id).filter((id) => !places.get(id).level).reduce((one, other) => (readers(other) > readers(one) ? other : one));
      this.element.scrollTop = middle(busiest) - this.element.clientHeight / 2;
    }
    const lit = this.stage.querySelector(".node:is(:hover, :focus)");
    if (lit) this.light(lit.dataset.id);
  }

  /** A line through the levels between, level where the cost stands, with an arrow. */
  edge({ from, to: id, input }, start, passes, own, [x, y]) {
    const room = input.named ? 12 : 52;
    let d = `M${start}`;
    let at = start;
    const curve = ([a, b]) => (d += `C${(at[0] + a) / 2},${at[1]} ${(at[0] + a) / 2},${b} ${a},${b}`);
    for (const point of passes) {
      curve(point);
      at = [point[0] + own, point[1]];
      d += `H${at[0]}`;
    }
    curve([x - room, y]);
    d += `H${x - 1}m-5 -3.5l5 3.5l-5 3.5`;
    return { from, to: id, path: svg("path", { d, class: input.named ? "named" : "reads" }), text: svg("text", { x: x - 9, y: y - 3 }) };
  }

  /** Stress all that a node depends on, and all that depends on it; null: nothing. */
  light(id) {
    const before = new Set([id]), after = new Set([id]);
    const spread = (set, mine, other) => {
      for (const node of set) for (const edge of this.edges) if (edge[mine] === node) set.add(edge[other]);
    };
    spread(before, "to", "from");
    spread(after, "from", "to");
    for (const [one, { element }] of this.shown) element.classList.toggle("lit", id !== null && (before.has(one) || after.has(one)));
    for (const { from, to: end, path, text } of this.edges) {
      for (const part of [path, text]) part.classList.toggle("lit", (before.has(from) && before.has(end)) || (after.has(from) && after.has(end)));
    }
  }
}

function made(node, picture) {
  const name = h("span.name", { title: node.title ?? node.name }, node.state && node.state !== "live" ? h(`span.dot.${node.state}`) : null, node.kind === "stored" ? [h("span.code", node.name), ` ${node.title}`] : node.name);
  const figures_ = h("span.figures");
  const events = { onmouseenter: () => picture.light(node.id), onmouseleave: () => picture.light(null), onfocus: () => picture.light(node.id), onblur: () => picture.light(null) };
  const content = [h("span.hidden", `${WORDS[node.kind]} `), name, figures_];
  const properties = { ...events, data: { id: node.id } };
  const element = node.link ? h(`a.node.${node.kind}`, { ...properties, href: node.link }, content) : h(`button.node.${node.kind}`, { ...properties, type: "button", onclick: () => toRow(node.id) }, content);
  return { node, element, figures: figures_ };
}

/** A stored query has no page: the table has its text. */
function toRow(id) {
  const place = document.getElementById(`row${id}`);
  place.focus({ preventScroll: true });
  place.closest("tr").scrollIntoView({ block: "center" });
}

function figures({ rows, bytes: size, state: its }) {
  const said = its && its !== "live" ? [its] : [];
  if (rows !== undefined && rows !== null) said.push(plural(rows, "row"));
  if (size !== undefined) said.push(bytes(size));
  return said.join(" · ");
}
