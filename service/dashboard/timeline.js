// The timeline of a view that joins on intervals: time across, a lane for each row or each value of the join key, a colour for each alias,
// and where the intervals meet. It asks for the window in view and nothing else, so the number of rows of the view does not matter.

import { get, name as quoted, toJson } from "./api.js";
import { Axis } from "./axis.js";
import { Surface } from "./canvas.js";
import { fill, h, say, write } from "./dom.js";
import { number, plural } from "./format.js";
import { AXIS, keyLanes, rowLanes } from "./lanes.js";
import { FADE, Painter } from "./painter.js";

const LIMIT = 400, KEYED_LIMIT = 1440; // rows of a window
const KEYS = 24; // lanes of a page
const SLICES = 12, EACH = 6; // of a window with more rows than that: some of each part of it
const PAUSE = 90; // ms after the last movement
const QUIET = 300; // ms between two looks at changes
const DATE = /^-?\d{4,}-\d\d-\d\d/;

/**
 * The timeline of `view` (as the service describes it) in an element. `{element, loaded, refresh()}`: `loaded` once there is something to
 * be seen, `refresh` after changes.
 * `failed(error)` is told what goes wrong, null once it goes well.
 */
export function timeline(view, { signal, failed }) {
  return new Timeline(view, signal, failed);
}

class Timeline {
  constructor(view, signal, failed) {
    this.view = view;
    this.signal = signal;
    this.failed = failed;
    this.dimension = view.shape.dimensions[0];
    this.aliases = this.dimension.map((one) => one.alias);
    this.axis = new Axis(this.dimension[0].type);
    this.keyed = view.shape.key !== null;
    this.mode = this.keyed ? "keys" : "rows";
    this.from = 0; // the first key
    this.keys = null;
    this.find = ""; // a key to look for
    this.items = new Map();
    this.lanes = [];
    this.keyLanes = [];
    this.chosen = -1; // the lane that the keyboard has chosen
    this.steered = false; // somebody has scrolled or moved it
    this.ready = false;
    this.loading = null;
    this.again = false;
    this.told = "";
    this.timer = 0;
    this.height = 0;
    this.#build();
    this.loaded = this.load(true);
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  // the frame

  #build() {
    const button = (text, label, call) => h("button", { type: "button", title: label, "aria-label": label, onclick: call }, text);
    this.span = h("output.span", { "aria-label": "Window in view" });
    this.note = h("p.note", { role: "status" });
    this.tip = h("div.tip", { hidden: true });
    this.stage = h("div.stage");
    this.spacer = h("div.spacer");
    this.scroller = h("div.lanes", { onscroll: () => this.surface.draw() }, this.stage, this.spacer);
    for (const by of ["wheel", "pointerdown", "touchstart", "keydown"]) this.scroller.addEventListener(by, () => (this.steered = true), { signal: this.signal, passive: true });
    this.pager = h("span.pager");
    const legend = h("ul.legend", { "aria-label": "Colours" });
    this.aliases.forEach((alias, at) => {
      const relation = this.view.shape.aliases.find((one) => one.name === alias).relation;
      legend.append(h("li", {}, h(`span.swatch.series-${(at % 8) + 1}`), relation === alias ? alias : `${alias} · ${relation}`));
    });
    if (this.aliases.length > 1) legend.append(h("li", {}, h("span.swatch.meet"), "together"));
    const modes = this.keyed ? null : h("span.choice", { role: "group", "aria-label": "Lanes" }, ["rows", "tracks"].map((mode) =>
      h("button", { type: "button", "aria-pressed": String(mode === this.mode), onclick: (event) => this.#choose(mode, event.currentTarget) }, mode === "rows" ? "One lane per row" : "Tracks")));
    const bar = h("div.timeline-bar", {},
      legend, h("span.grow"), this.span, modes, this.pager,
      h("span.choice", { role: "group", "aria-label": "Zoom" },
        button("−", "Zoom out", () => this.surface.zoom(1 / 0.6)), button("+", "Zoom in", () => this.surface.zoom(0.6)), button("Fit", "Show everything", () => this.surface.fit())));
    const help = h("p.hidden", { id: "timeline-help" }, "Arrow left and right pan, plus and minus zoom, 0 shows everything, arrow up and down choose a lane. The rows are in the table below, too.");
    this.element = h("div.timeline", {}, bar, this.note, h("div.picture", {}, this.scroller, this.tip), help);
    const lane = (by) => () => this.#select(this.chosen + by);
    this.surface = new Surface(this.stage, {
      x: this.axis,
      margin: { left: 0, top: AXIS, right: 0, bottom: 0 },
      draw: (...given) => this.#draw(...given),
      moved: () => this.#moved(),
      pointed: (x, y) => this.#point(x, y),
      left: () => this.#point(-1, -Infinity),
      keys: { ArrowUp: lane(-1), ArrowDown: lane(1), PageUp: lane(-10), PageDown: lane(10) },
      label: `Timeline of the view ${this.view.name}`,
      signal: this.signal,
    });
    this.painter = new Painter(this.surface, this.axis);
    this.surface.canvas.setAttribute("aria-describedby", "timeline-help");
    this.surface.canvas.addEventListener("blur", () => (this.tip.hidden = true), { signal: this.signal });
    new ResizeObserver(() => this.#layout(true)).observe(this.element);
    this.#pager();
  }

  #choose(mode, pressed) {
    this.mode = mode;
    for (const one of pressed.parentNode.children) one.setAttribute("aria-pressed", String(one === pressed));
    this.#layout(true);
  }

  #pager() {
    if (!this.keyed) return;
    const { columns, of, whole } = this.keys ?? { columns: this.view.shape.key.columns, of: 0, whole: true };
    const turn = (by) => {
      this.from = Math.max(0, Math.min(this.keys.of - 1, this.from + by));
      this.load();
    };
    const last = Math.min(of, this.from + KEYS);
    const words = this.find ? `${columns.join(", ")} = ${this.find}` : of ? `${columns.join(", ")} ${number(this.from + 1)}–${number(last)} of ${number(of)}${whole ? "" : "+"}` : "no keys";
    if (!this.pagerParts) {
      const look = h("input", { type: "search", size: 9, placeholder: columns.join(", "), "aria-label": `Show the lane of one ${columns.join(", ")}`, onchange: () => {
        this.find = columns.length === 1 ? look.value.trim() : "";
        this.load();
      } });
      this.pagerParts = { words: h("span"), back: h("button", { type: "button", "aria-label": "Keys before", onclick: () => turn(-KEYS) }, "‹"), next: h("button", { type: "button", "aria-label": "Keys after", onclick: () => turn(KEYS) }, "›") };
      fill(this.pager, columns.length === 1 ? look : null, this.pagerParts.words, this.pagerParts.back, this.pagerParts.next);
    }
    write(this.pagerParts.words, words);
    this.pagerParts.back.disabled = Boolean(this.find) || this.from === 0;
    this.pagerParts.next.disabled = Boolean(this.find) || last >= of;
  }

  // what is in view

  #moved() {
    this.ready = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), PAUSE);
    this.#words();
  }

  #words() {
    write(this.span, `${this.axis.words(this.axis.lo)} – ${this.axis.words(this.axis.hi)}`);
  }

  /** After changes: look again, now and then. */
  refresh() {
    if (this.loading) { // whoever waits for the first window gets it before anything else is asked for
      this.again = true;
      return;
    }
    if (!this.ready) {
      this.load(true);
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), QUIET);
  }

  #address(window, options) {
    const query = new URLSearchParams(options);
    if (window) query.set(this.view.shape.dimensions.length > 1 ? `overlaps.${this.dimension[0].interval}` : "overlaps", window);
    if (this.keyed && this.find) query.set(`where.${this.view.shape.key.alias}.${this.view.shape.key.columns[0]}`, this.find);
    else if (this.keyed) {
      query.set("keys", KEYS);
      query.set("from", this.from);
    }
    return `/v1/views/${quoted(this.view.name)}/window?${query}`;
  }

  async load(first = false) {
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    this.again = false;
    const stop = AbortSignal.any([loading.signal, this.signal]);
    const slow = setTimeout(() => write(this.note, "The service is still looking …"), 1000);
    const begun = performance.now();
    const options = { limit: this.keyed && !this.find ? KEYED_LIMIT : LIMIT };
    const whole = this.axis.isWhole;
    try {
      let answer = await get(this.#address(first ? null : this.axis.window, first || whole ? { ...options, extent: true } : options), stop);
      const grown = (first || (whole && this.axis.isWhole)) && this.#fit(answer.extent[0]) && !first; // unless somebody has moved it meanwhile
      if (grown) answer = await get(this.#address(this.axis.window, options), stop);
      let lanes = answer.lanes;
      const sampled = lanes.length === 1 && lanes[0].key === null && lanes[0].more;
      if (sampled) lanes = await this.#sample(lanes, stop);
      this.keys = answer.keys ?? this.keys;
      this.#take(lanes, !first, grown && !sampled);
      this.#pager();
      const shown = lanes.reduce((sum, lane) => sum + lane.rows.length, 0);
      const more = lanes.some((lane) => lane.more);
      const partial = sampled ? `A sample of ${number(shown)} rows; there are more in this window. Zoom in to see all of them.` : more ? "Some keys have more rows in this window than are shown. Zoom in to see all of them." : "";
      this.#tell(partial || (this.ready ? `${plural(shown, "row")} in view` : ""));
      this.took = performance.now() - begun;
      this.failed(null);
    } catch (error) {
      if (error.name === "AbortError") return;
      const isOfKey = this.find && error.type === "bad-parameter";
      write(this.note, isOfKey ? error.message : this.told); // the rows stay, and what is said of them
      this.failed(isOfKey ? null : error);
    } finally {
      clearTimeout(slow);
      if (this.loading === loading) {
        this.loading = null;
        if (this.again && !this.signal.aborted) this.refresh();
      }
    }
  }

  /** Say what of the window is shown. */
  #tell(text) {
    this.told = text;
    write(this.note, text);
  }

  /** Show everything, or that between which most ends lie, if some lie far out. Once it shows this, it grows only; whether it has. */
  #fit(extent) {
    if (extent.start === null) return false;
    const [start, end] = [this.axis.number(extent.start), this.axis.number(extent.end)];
    const [low, high] = [this.axis.number(extent.most.start), this.axis.number(extent.most.end)];
    const far = end - start > 5 * Math.max(1, high - low);
    const [lo, hi] = far ? [low, high] : [start, end];
    if (this.ready && lo >= this.axis.lo && hi <= this.axis.hi) return false;
    const room = 0.02 * (hi - lo || 1);
    this.axis.showWhole(this.ready ? Math.min(lo - room, this.axis.lo) : lo - room, this.ready ? Math.max(hi + room, this.axis.hi) : hi + room);
    this.ready = true;
    this.#words();
    return true;
  }

  /** More rows than are shown: some of each slice of the window, rather than all at its beginning. */
  async #sample(lanes, signal) {
    const { lo, hi } = this.axis;
    const slices = Array.from({ length: SLICES }, (_, at) => new Axis(this.axis.kind, lo + ((hi - lo) * at) / SLICES, lo + ((hi - lo) * (at + 1)) / SLICES));
    const found = new Map();
    const ask = async (of, limit) => {
      const answers = await Promise.all(of.map((slice) => get(this.#address(slice.window, { limit }), signal)));
      for (const answer of answers) for (const row of answer.lanes[0].rows) found.set(toJson(row.key), row);
      return of.filter((_, at) => answers[at].lanes[0].more);
    };
    const full = await ask(slices, EACH);
    if (full.length && found.size < (SLICES * EACH) / 2) await ask(full, Math.ceil((3 * SLICES * EACH) / full.length)); // most rows lie in few slices, or in several at once
    return [{ key: null, more: true, rows: [...found.values()] }];
  }

  // rows as lanes

  /** Take what the service has told; what was not there flashes if `live`, what is gone fades. `grown`: the window has what it had. While
   * nobody has moved it, a new last row comes into view, as in a timeline that grows with the present. */
  #take(lanes, live, grown) {
    const now = performance.now();
    const seen = new Map();
    const before = this.items;
    const same = grown || this.windowOfItems === this.#where();
    this.windowOfItems = this.#where();
    for (const lane of lanes) {
      for (const row of lane.rows) {
        const id = toJson(row.key);
        const old = before.get(id);
        const fresh = live && same && (!old || old.gone);
        seen.set(id, { ...this.#item(row, lane.key), id, born: fresh ? now : (old?.born ?? 0), gone: 0 });
      }
    }
    if (live && same) {
      for (const [id, old] of before) {
        if (seen.has(id)) continue;
        if (!old.gone) old.gone = now;
        if (now - old.gone < FADE) seen.set(id, old);
      }
    }
    this.items = seen;
    this.keyLanes = lanes.map((lane) => ({ key: lane.key, more: lane.more }));
    this.#layout();
    const isLast = this.mode === "rows" && this.lanes.at(-1)?.items[0].born === now;
    if (isLast && !this.steered) this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
  }

  #where() {
    return `${this.axis.lo} ${this.axis.hi} ${this.from} ${this.find}`;
  }

  #item(row, lane) {
    const spans = this.dimension.map(({ alias, interval }) => {
      const ends = row.ends[alias]?.[interval];
      const there = row.key[alias] !== null && ends;
      return there ? [this.axis.number(ends.start, -Infinity), this.axis.number(ends.end, Infinity)] : null;
    });
    const some = spans.filter(Boolean);
    const meet = [Math.max(...some.map(([start]) => start)), Math.min(...some.map(([, end]) => end))];
    const words = this.aliases.map((alias) => this.#name(row, alias, lane));
    return { row, lane: lane === null ? "" : toJson(lane), laneKey: lane, spans, meet, words, label: words.filter(Boolean).join(" · ") };
  }

  /** What an alias of a row is called: its texts, or its key. */
  #name(row, alias, lane) {
    if (row.key[alias] === null) return "";
    const own = this.view.shape.columns.filter((column) => column.alias === alias).map((column) => row.row[column.name]);
    const texts = [...new Set(own.filter((value) => typeof value === "string" && !DATE.test(value)))];
    const told = lane === null ? [this.find] : Object.values(lane); // by the lane
    return texts.filter((text) => !told.includes(text)).slice(0, 2).join(", ") || Object.values(row.key[alias] ?? {}).join(", ");
  }

  /** Place all lanes. The picture keeps its height, or grows, so that nothing jumps while somebody zooms; `anew`: it takes what it needs. */
  #layout(anew = false) {
    const wide = this.element.clientWidth > 640;
    this.painter.isOfRows = this.mode === "rows";
    this.painter.left = this.mode === "keys" && wide ? Math.min(120, this.element.clientWidth * 0.2) : 0;
    this.surface.margin.left = this.painter.left;
    const items = [...this.items.values()];
    const chosen = this.lanes[this.chosen]?.id;
    this.lanes = this.painter.isOfRows ? rowLanes(items, this.aliases) : keyLanes(items, this.keyLanes, this.aliases, this.find, wide);
    let y = 0;
    for (const lane of this.lanes) {
      lane.y = y;
      y += lane.height;
    }
    this.#follow(chosen);
    const most = Math.max(220, Math.min(innerHeight * 0.58, 1100));
    const width = this.element.clientWidth;
    if (anew && (width !== this.width || this.mode !== this.heightOf)) [this.height, this.width, this.heightOf] = [0, width, this.mode];
    const height = (this.height = Math.max(110, this.height, Math.min(most, y + AXIS)));
    this.scroller.style.height = `${height}px`;
    this.stage.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, y + AXIS - height)}px`;
    this.surface.measure();
    this.surface.draw();
  }

  #draw(context, width, height, now) {
    const nothing = this.loading ? "" : this.ready ? "No rows in this window" : "The view has no rows yet";
    return this.painter.draw(context, width, height, now, { lanes: this.lanes, top: this.scroller.scrollTop, marked: [this.chosen, this.hovered], nothing });
  }

  // looking closer

  #point(x, y) {
    const at = this.#laneAt(y + this.scroller.scrollTop);
    const lane = this.lanes[at];
    if (this.hovered !== at) {
      this.hovered = at;
      this.surface.draw();
    }
    const found = lane && this.#hit(lane, x + this.painter.left, y + this.scroller.scrollTop - lane.y);
    this.tip.hidden = !found;
    if (found) this.#show(found, x + this.painter.left, y + AXIS);
  }

  #laneAt(y) {
    let [low, high] = [0, this.lanes.length - 1];
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.lanes[middle].y > y) high = middle - 1;
      else if (this.lanes[middle].y + this.lanes[middle].height <= y) low = middle + 1;
      else return middle;
    }
    return -1;
  }

  #hit(lane, x, y) {
    const on = (one) => {
      const [from, width] = this.painter.across(one.span);
      return x >= from - 2 && x <= from + width + 2 && y >= one.y - 1 && y <= one.y + one.height + 1;
    };
    const meet = lane.meets.find(on);
    const part = lane.parts.find(on);
    if (meet) return { items: [meet.item] };
    if (part) return { items: part.items, part };
    return this.mode === "rows" ? { items: lane.items } : null;
  }

  #show({ items, part }, x, y) {
    const item = items[0];
    const lines = [];
    this.aliases.forEach((alias, at) => {
      const span = item.spans[at];
      if (!span || (part && part.alias !== at)) return;
      lines.push(h("tr", {}, h("th", {}, h(`span.swatch.series-${(at % 8) + 1}`), item.words[at]), h("td", `${this.axis.words(span[0])} – ${this.axis.words(span[1])}`)));
    });
    if (!part && this.aliases.length > 1) lines.push(h("tr", {}, h("th", {}, h("span.swatch.meet"), "together"), h("td", `${this.axis.words(item.meet[0])} – ${this.axis.words(item.meet[1])}`)));
    if (part) lines.push(h("tr", {}, h("th", ""), h("td", plural(items.length, "row"))));
    fill(this.tip, h("table", {}, lines));
    this.tip.hidden = false;
    const box = this.element.querySelector(".picture").getBoundingClientRect();
    const [width, height] = [this.tip.offsetWidth, this.tip.offsetHeight];
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - width - 8))}px`;
    this.tip.style.top = `${y + height + 24 > box.height ? Math.max(4, y - height - 10) : y + 16}px`;
  }

  /** The lane `id` that was chosen stays chosen, wherever it is now. If it is gone, the next step begins where it was. */
  #follow(id) {
    if (id === undefined) return;
    const at = this.lanes.findIndex((lane) => lane.id === id);
    if (at < 0) this.tip.hidden = true;
    else this.chosen = at;
  }

  #select(at) {
    if (!this.lanes.length) return;
    this.chosen = Math.max(0, Math.min(this.lanes.length - 1, at));
    const lane = this.lanes[this.chosen];
    const view = this.scroller.clientHeight - AXIS;
    if (lane.y < this.scroller.scrollTop) this.scroller.scrollTop = lane.y;
    else if (lane.y + lane.height > this.scroller.scrollTop + view) this.scroller.scrollTop = lane.y + lane.height - view;
    const words = lane.items.slice(0, 5).map((item) => `${item.label}${this.aliases.length > 1 ? ", together" : ","} ${this.axis.words(item.meet[0])} to ${this.axis.words(item.meet[1])}`);
    say(`Lane ${this.chosen + 1} of ${this.lanes.length}. ${lane.label}. ${words.join(". ") || "no rows in this window"}`);
    if (this.mode === "rows" && lane.items.length) this.#show({ items: lane.items }, this.painter.left + Math.max(0, this.axis.place(lane.items[0].meet[0])), AXIS + lane.y - this.scroller.scrollTop + lane.height / 2);
    this.surface.draw();
  }
}
