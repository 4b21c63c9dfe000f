// A canvas that is panned and zoomed by mouse, touch and keyboard, drawn only when something is to be seen.

const CLOSER = 0.8;

/**
 * `host` gets a canvas of its size. `x`, `y`: the axes (y null: what is there scrolls). `margin`: pixels around the picture, {left, top,
 * right, bottom}. `draw(context, width, height, now)` returns whether it wants to draw again at once. `moved()`: what is in view has changed.
 * `pointed(x, y)`, `left()`: the pointer is there, gone. `keys`: further keys, by name.
 */
export class Surface {
  constructor(host, { x, y = null, margin, draw, moved, pointed, left, keys = {}, label, signal }) {
    Object.assign(this, { host, x, y, margin, moved, pointed, left, keys, drawn: draw });
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", label);
    host.append(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.pointers = new Map();
    this.asked = 0;
    this.colours = {};
    const options = { signal };
    this.canvas.addEventListener("pointerdown", (event) => this.#down(event), options);
    this.canvas.addEventListener("pointermove", (event) => this.#move(event), options);
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, (event) => this.#up(event), options);
    this.canvas.addEventListener("pointerleave", () => this.left(), options);
    this.canvas.addEventListener("dblclick", (event) => this.zoom(0.5, ...this.#place(event)), options);
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { ...options, passive: false });
    this.canvas.addEventListener("keydown", (event) => this.#key(event), options);
    const size = new ResizeObserver(() => this.#resize());
    size.observe(host);
    signal.addEventListener("abort", () => {
      size.disconnect();
      cancelAnimationFrame(this.asked);
    });
    for (const name of ["livejoin:theme"]) addEventListener(name, () => this.recolour(), options);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour(), options);
    this.recolour();
    this.#resize();
  }

  /** Colours of the style sheet, read again when they may have changed. */
  recolour() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = {
      text: get("text"), dim: get("dim"), line: get("line"), faint: get("faint"), ground: get("ground"), panel: get("panel"), accent: get("accent"),
      meet: get("meet"), born: get("born"), gone: get("gone"), series: Array.from({ length: 8 }, (_, at) => get(`series-${at + 1}`)),
    };
    this.font = (size, weight = 400) => `${weight} ${size}px ${get("font")}`;
    this.draw();
  }

  get width() {
    return this.canvas.clientWidth;
  }

  get height() {
    return this.canvas.clientHeight;
  }

  /** Draw in the next frame. */
  draw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame((now) => {
      this.asked = 0;
      const scale = devicePixelRatio || 1;
      this.context.setTransform(scale, 0, 0, scale, 0, 0);
      this.context.clearRect(0, 0, this.width, this.height);
      if (this.drawn(this.context, this.width, this.height, now)) this.draw();
    });
  }

  zoom(factor, x = this.x.length / 2, y = this.y ? this.y.length / 2 : 0) {
    this.x.zoom(factor, x);
    this.y?.zoom(factor, y);
    this.#changed();
  }

  pan(x, y = 0) {
    this.x.pan(x);
    if (y) this.y?.pan(y);
    this.#changed();
  }

  /** Show everything again. */
  fit() {
    this.x.show(...this.x.whole);
    this.y?.show(...this.y.whole);
    this.#changed();
  }

  #changed() {
    this.draw();
    this.moved();
  }

  #resize() {
    const scale = devicePixelRatio || 1;
    const [width, height] = [Math.max(1, Math.round(this.width * scale)), Math.max(1, Math.round(this.height * scale))];
    if (this.canvas.width !== width || this.canvas.height !== height) [this.canvas.width, this.canvas.height] = [width, height];
    this.measure();
    this.draw();
  }

  /** The axes take what the margins leave. */
  measure() {
    this.x.length = Math.max(1, this.width - this.margin.left - this.margin.right);
    if (this.y) this.y.length = Math.max(1, this.height - this.margin.top - this.margin.bottom);
  }

  /** Of an event, from the corner of the picture. */
  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left - this.margin.left, event.clientY - box.top - this.margin.top];
  }

  #down(event) {
    if (event.button > 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.#place(event));
    this.canvas.classList.add("held");
  }

  #move(event) {
    const now = this.#place(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.pointed(...now);
      return;
    }
    this.pointers.set(event.pointerId, now);
    if (this.pointers.size === 1) {
      this.left();
      this.pan(before[0] - now[0], before[1] - now[1]);
    } else if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const apart = (a, b) => Math.max(12, Math.hypot(a[0] - b[0], a[1] - b[1]));
      this.zoom(apart(before, other) / apart(now, other), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    }
  }

  #up(event) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size) this.canvas.classList.remove("held");
  }

  /** With Ctrl, or while the picture has the focus: zoom. Sideways: pan. Else the page scrolls. */
  #wheel(event) {
    const focused = document.activeElement === this.canvas;
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(sideways) > 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      event.preventDefault();
      this.pan(sideways);
    } else if (event.ctrlKey || event.metaKey || (focused && (this.y || event.altKey))) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), ...this.#place(event));
    }
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = this.x.length * (event.shiftKey ? 0.5 : 0.1);
    const own = {
      ArrowLeft: () => this.pan(-step),
      ArrowRight: () => this.pan(step),
      ...(this.y ? { ArrowUp: () => this.pan(0, -step), ArrowDown: () => this.pan(0, step) } : {}),
      "+": () => this.zoom(CLOSER),
      "=": () => this.zoom(CLOSER),
      "-": () => this.zoom(1 / CLOSER),
      "0": () => this.fit(),
      Home: () => this.fit(),
      ...this.keys,
    };
    if (!own[event.key]) return;
    event.preventDefault();
    own[event.key]();
  }
}
