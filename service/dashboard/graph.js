// The hypergraph of a natural join: variables as points, each alias as the area around its variables; and the tree or order that is chosen.

import { h, svg } from "./dom.js";

const SIZE = 300, SIDE = 60, RADIUS = 96, MIDDLE = SIZE / 2; // beside it is room for names

/** `natural`: as `POST /v1/explain` gives it. */
export function hypergraph(natural) {
  const variables = Object.keys(natural.variables);
  const aliases = aliasesOf(natural);
  const places = new Map(variables.map((name, at) => [name, onCircle(at, variables.length)]));
  const picture = svg("svg", { viewBox: `${-SIDE} 0 ${SIZE + 2 * SIDE} ${SIZE - 20}`, role: "img", "aria-label": words(natural, aliases) });
  const labels = [];
  [...aliases].forEach(([alias, own], at) => {
    const points = own.map((name) => places.get(name));
    picture.append(svg("path", { d: around(points, 20 + 4 * (at % 4)), class: `edge series-${(at % 8) + 1}` }));
    const centre = [average(points, 0), average(points, 1)];
    const out = points.length > 2 || variables.length < 3 ? 0 : 1;
    labels.push([alias, centre[0] + out * (centre[0] - MIDDLE) * 0.28, centre[1] + out * (centre[1] - MIDDLE) * 0.28, at]);
  });
  for (const [name, [x, y]] of places) {
    picture.append(svg("circle", { cx: x, cy: y, r: 4, class: "variable" }));
    const [dx, dy] = [x - MIDDLE, y - MIDDLE];
    const far = Math.hypot(dx, dy) || 1;
    const text = svg("text", { x: x + (dx / far) * 34, y: y + (dy / far) * 34 + 4, class: "variable", "text-anchor": dx > 12 ? "start" : dx < -12 ? "end" : "middle" });
    text.textContent = name;
    picture.append(text);
  }
  for (const [alias, x, y, at] of labels) {
    const text = svg("text", { x, y: y + 4, class: `name series-${(at % 8) + 1}`, "text-anchor": "middle" });
    text.textContent = alias;
    picture.append(text);
  }
  return h("div.hypergraph", {}, h("figure", {}, picture, h("figcaption", `${natural.class}; at most n^${round(natural.agm.exponent)} rows, if each relation has n`)), chosen(natural));
}

/** The variables of each alias. */
function aliasesOf(natural) {
  const found = new Map();
  for (const [variable, columns] of Object.entries(natural.variables)) {
    for (const column of columns.flatMap((one) => one.split(" "))) {
      const alias = column.split(".")[0];
      if (!found.has(alias)) found.set(alias, []);
      if (!found.get(alias).includes(variable)) found.get(alias).push(variable);
    }
  }
  return new Map([...found].sort());
}

function words(natural, aliases) {
  return `Hypergraph of the join: ${[...aliases].map(([alias, own]) => `${alias} has ${own.join(", ")}`).join("; ")}`;
}

/** The join tree, or else the order in which variables are eliminated. */
function chosen(natural) {
  if (natural.join_tree) return h("div", {}, h("h3", "Join tree"), natural.join_tree.length ? h("ul.tree", {}, natural.join_tree.map(({ aliases, by }) => h("li", {}, h("span.alias", aliases[0]), h("span.by", ` ${by.join(", ")} `), h("span.alias", aliases[1])))) : h("p.note", "a single alias"));
  if (natural.elimination_order) return h("div", {}, h("h3", "Elimination order"), h("ol.order", {}, natural.elimination_order.map((name, at) => h("li", {}, at ? h("span.arrow", { "aria-hidden": "true" }, "→") : null, h("span.alias", name)))));
  return h("div", {}, h("h3", "Cyclic"), h("p.note", "There is no join tree and no nested elimination order: the join is read by all of its relations at once."));
}

const round = (value) => Number(value.toFixed(2));
const average = (points, at) => points.reduce((sum, point) => sum + point[at], 0) / points.length;

function onCircle(at, count) {
  if (count === 1) return [MIDDLE, MIDDLE];
  const angle = -Math.PI / 2 + (2 * Math.PI * at) / count;
  return [MIDDLE + RADIUS * Math.cos(angle), MIDDLE + RADIUS * Math.sin(angle)];
}

/** A smooth line at this distance around points. */
function around(points, distance) {
  const cloud = points.flatMap(([x, y]) => Array.from({ length: 16 }, (_, at) => [x + distance * Math.cos((at * Math.PI) / 8), y + distance * Math.sin((at * Math.PI) / 8)]));
  return `M${hull(cloud).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L")}Z`;
}

/** Andrew's monotone chain. */
function hull(points) {
  const sorted = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const cross = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const half = (order) => {
    const found = [];
    for (const point of order) {
      while (found.length > 1 && cross(found[found.length - 2], found[found.length - 1], point) <= 0) found.pop();
      found.push(point);
    }
    return found.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}
