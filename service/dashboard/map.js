// Boxes: the map of a view that joins on intervals in two dimensions or more, of which two are shown. It asks for the window in view.

import { get, name as quoted, toJson } from "./api.js";
import { Axis } from "./axis.js";
import { Surface } from "./canvas.js";
import { fill, h, write } from "./dom.js";
import { number, plural } from "./format.js";

const LIMIT = 2000, PAUSE = 90, QUIET = 300, FLASH = 1400;
const MARGIN = { left: 62, top: 8, right: 8, bottom: 28 };
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** As `timeline`. */
export function map(view, { signal, failed }) {
  const dimensions = view.shape.dimensions;
  const aliases = view.shape.aliases.map((one) => one.name).filter((alias) => dimensions.some((dimension) => dimension.some((one) => one.alias === alias)));
  const axes = dimensions.slice(0, 2).map((dimension) => new Axis(dimension[0].type));
  axes[1].flipped = true;
  let [items, ready, loading, again, timer, place] = [new Map(), false, null, false, 0, ""];
  const names = dimensions.slice(0, 2).map((dimension) => dimension[0].interval);
  const note = h("p.note", { role: "status" });
  const span = h("output.span", { "aria-label": "Window in view" });
  const tip = h("div.tip", { hidden: true });
  const stage = h("div.stage");
  const legend = h("ul.legend", { "aria-label": "Colours" }, aliases.map((alias, at) => h("li", {}, h(`span.swatch.series-${(at % 8) + 1}`), alias)), h("li", {}, h("span.swatch.meet"), "together"));
  const button = (text, label, call) => h("button", { type: "button", title: label, "aria-label": label, onclick: call }, text);
  const bar = h("div.timeline-bar", {}, legend, h("span.note", `across: ${names[0]}, up: ${names[1]}`), h("span.grow"), span,
    h("span.choice", { role: "group", "aria-label": "Zoom" }, button("−", "Zoom out", () => surface.zoom(1 / 0.6)), button("+", "Zoom in", () => surface.zoom(0.6)), button("Fit", "Show everything", () => surface.fit())));
  const element = h("div.timeline.map", {}, bar, note, h("div.picture", {}, stage, tip), h("p.hidden", { id: "map-help" }, "Arrow keys pan, plus and minus zoom, 0 shows everything. The rows are in the table below, too."));
  const surface = new Surface(stage, {
    x: axes[0], y: axes[1], margin: MARGIN, draw, moved, pointed, left: () => (tip.hidden = true), label: `Map of the boxes of the view ${view.name}`, signal,
  });
  surface.canvas.setAttribute("aria-describedby", "map-help");

  function moved() {
    clearTimeout(timer);
    timer = setTimeout(load, PAUSE);
    write(span, axes.map((axis) => `${axis.words(axis.lo)} – ${axis.words(axis.hi)}`).join(" × "));
  }

  function refresh() {
    if (loading) again = true;
    else {
      clearTimeout(timer);
      timer = setTimeout(load, QUIET);
    }
  }

  async function load() {
    loading?.abort();
    const own = (loading = new AbortController());
    again = false;
    const whole = axes.every((axis) => axis.isWhole);
    const ask = (options) => {
      const query = new URLSearchParams({ limit: LIMIT, ...options });
      if (ready) axes.forEach((axis, at) => query.set(dimensions.length > 1 ? `overlaps.${names[at]}` : "overlaps", axis.window));
      return get(`/v1/views/${quoted(view.name)}/window?${query}`, AbortSignal.any([own.signal, signal]));
    };
    try {
      let answer = await ask(whole ? { extent: true } : {});
      const grown = whole && axes.every((axis) => axis.isWhole) && fit(answer.extent); // unless somebody has moved it meanwhile
      if (grown) answer = await ask({});
      const lane = answer.lanes[0];
      take(lane.rows, grown && !lane.more);
      write(note, lane.more ? `The first ${number(lane.rows.length)} rows of this window; there are more. Zoom in to see all of them.` : `${plural(lane.rows.length, "row")} in view`);
      failed(null);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    } finally {
      if (loading === own) {
        loading = null;
        if (again && !signal.aborted) refresh();
      }
    }
  }

  /** Show everything. Once it shows this, it grows only; whether it has. */
  function fit(extent) {
    const shown = extent.slice(0, 2);
    if (shown.some((one) => one.start === null)) return false;
    const ends = shown.map((one, at) => [axes[at].number(one.start), axes[at].number(one.end)]);
    if (ready && ends.every(([lo, hi], at) => lo >= axes[at].lo && hi <= axes[at].hi)) return false;
    ends.forEach(([lo, hi], at) => {
      const [axis, room] = [axes[at], 0.03 * (hi - lo || 1)];
      axis.showWhole(ready ? Math.min(lo - room, axis.lo) : lo - room, ready ? Math.max(hi + room, axis.hi) : hi + room);
    });
    ready = true;
    write(span, axes.map((axis) => `${axis.words(axis.lo)} – ${axis.words(axis.hi)}`).join(" × "));
    return true;
  }

  function take(rows, grown) {
    const now = performance.now();
    const where = axes.map((axis) => axis.window).join(" ");
    const live = items.size > 0 && (grown || where === place);
    place = where;
    const next = new Map();
    for (const row of rows) {
      const id = toJson(row.key);
      next.set(id, { ...boxesOf(row), row, born: live && !items.has(id) ? now : (items.get(id)?.born ?? 0) });
    }
    items = next;
    surface.draw();
  }

  /** The box of each alias: [x from, x to, y from, y to]; an alias without an interval in a dimension has all of it. */
  function boxesOf(row) {
    const boxes = aliases.map((alias) => dimensions.slice(0, 2).flatMap((dimension, at) => {
      const joined = dimension.find((one) => one.alias === alias);
      const ends = joined && row.ends[alias]?.[joined.interval];
      return ends ? [axes[at].number(ends.start, -Infinity), axes[at].number(ends.end, Infinity)] : [-Infinity, Infinity];
    }));
    const meet = [0, 2].flatMap((at) => [Math.max(...boxes.map((box) => box[at])), Math.min(...boxes.map((box) => box[at + 1]))]);
    return { boxes, meet };
  }

  function rectangle([x1, x2, y1, y2]) {
    const clamp = (value, most) => Math.max(-8, Math.min(most + 8, value));
    const across = [x1, x2].map((value) => clamp(axes[0].place(value), axes[0].length));
    const up = [y1, y2].map((value) => clamp(axes[1].place(value), axes[1].length));
    return [MARGIN.left + Math.min(...across), MARGIN.top + Math.min(...up), Math.max(1.5, Math.abs(across[1] - across[0])), Math.max(1.5, Math.abs(up[1] - up[0]))];
  }

  function draw(context, width, height, now) {
    grid(context, width, height);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, axes[0].length, axes[1].length);
    context.clip();
    const { colours } = surface;
    const drawn = aliases.map(() => new Set());
    let moving = false;
    for (const item of items.values()) {
      item.boxes.forEach((box, at) => {
        const id = toJson(item.row.key[aliases[at]]);
        if (drawn[at].has(id)) return;
        drawn[at].add(id);
        context.globalAlpha = 0.12;
        context.fillStyle = colours.series[at % 8];
        context.fillRect(...rectangle(box));
        context.globalAlpha = 0.9;
        context.strokeStyle = colours.series[at % 8];
        context.lineWidth = 1;
        context.strokeRect(...rectangle(box));
      });
    }
    for (const item of items.values()) {
      const [x, y, w, t] = rectangle(item.meet);
      context.globalAlpha = 0.55;
      context.fillStyle = colours.meet;
      context.fillRect(x, y, w, t);
      const flash = item.born && !still.matches ? Math.max(0, 1 - (now - item.born) / FLASH) : 0;
      if (flash) {
        context.globalAlpha = flash;
        context.strokeStyle = colours.born;
        context.lineWidth = 2;
        context.strokeRect(x - 1, y - 1, w + 2, t + 2);
        moving = true;
      }
    }
    context.restore();
    context.globalAlpha = 1;
    if (!items.size) {
      context.fillStyle = colours.dim;
      context.textAlign = "center";
      context.font = surface.font(13);
      context.fillText(loading ? "" : "No rows in this window", width / 2, height / 2);
    }
    return moving;
  }

  function grid(context, width, height) {
    const { colours } = surface;
    context.font = surface.font(11);
    context.textBaseline = "middle";
    for (const tick of axes[0].ticks(84)) {
      const x = Math.round(MARGIN.left + axes[0].place(tick.value));
      context.fillStyle = colours.line;
      context.fillRect(x, MARGIN.top, 1, axes[1].length + 4);
      context.fillStyle = colours.dim;
      context.textAlign = x > width - 30 ? "right" : "center";
      context.fillText(tick.text, x, height - MARGIN.bottom / 2);
    }
    for (const tick of axes[1].ticks(44)) {
      const y = Math.round(MARGIN.top + axes[1].place(tick.value));
      context.fillStyle = colours.line;
      context.fillRect(MARGIN.left - 4, y, axes[0].length + 4, 1);
      context.fillStyle = colours.dim;
      context.textAlign = "right";
      context.fillText(tick.text, MARGIN.left - 8, y);
    }
  }

  function pointed(x, y) {
    const [left, top] = [x + MARGIN.left, y + MARGIN.top];
    const inside = ([from, above, w, t]) => left >= from && left <= from + w && top >= above && top <= above + t;
    const found = [...items.values()].find((item) => inside(rectangle(item.meet)));
    tip.hidden = !found;
    if (!found) return;
    fill(tip, h("table", {}, Object.entries(found.row.row).slice(0, 12).map(([name, value]) => h("tr", {}, h("th", name), h("td", String(value ?? "–"))))));
    const box = stage.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(left + 14, box.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${top + tip.offsetHeight + 24 > box.height ? Math.max(4, top - tip.offsetHeight - 10) : top + 16}px`;
  }

  const loaded = load();
  signal.addEventListener("abort", () => clearTimeout(timer));
  return { element, loaded, refresh };
}
