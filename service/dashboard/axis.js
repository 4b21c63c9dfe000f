// One dimension of a picture: from values of the service to places on the screen and back. Times are milliseconds since 1970; times of the
// type `timestamp` are shown in the reader's zone, dates have none.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR, YEAR = 365.2425 * DAY;
const STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => [n, "ms", n]),
  ...[1, 2, 5, 15, 30].map((n) => [n * SECOND, "second", n]),
  ...[1, 2, 5, 15, 30].map((n) => [n * MINUTE, "minute", n]),
  ...[1, 2, 3, 6, 12].map((n) => [n * HOUR, "hour", n]),
  ...[1, 2, 5, 10].map((n) => [n * DAY, "day", n]),
  ...[1, 2, 3, 6].map((n) => [(n * YEAR) / 12, "month", n]),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((n) => [n * YEAR, "year", n]),
];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const FIRST = Date.parse("0001-01-01T00:00:00Z"), LAST = Date.parse("9999-12-31T00:00:00Z");

export class Axis {
  /** `kind`: the type of the endpoints; shows from `lo` to `hi` over `length` pixels, `flipped` from right to left (or upwards). */
  constructor(kind, lo = 0, hi = 1) {
    this.kind = kind;
    this.isTime = kind === "date" || kind === "timestamp" || kind.startsWith("timestamp in ");
    this.length = 1;
    this.flipped = false;
    this.showWhole(lo, hi);
  }

  /** Show this, and again when everything is asked for. */
  showWhole(lo, hi) {
    this.show(lo, hi);
    this.whole = [this.lo, this.hi];
  }

  get isWhole() {
    return this.lo === this.whole[0] && this.hi === this.whole[1];
  }

  /** Show from lo to hi; never less than what can be told apart. */
  show(lo, hi) {
    const least = this.isTime ? (this.kind === "date" ? DAY : 1) : this.kind === "int64" ? 1 : Math.max(1e-9, Math.abs(lo) * 1e-9);
    if (!(hi - lo >= least)) {
      const middle = (lo + hi) / 2;
      [lo, hi] = [middle - least / 2, middle + least / 2];
    }
    if (this.isTime) {
      const [width, limit] = [hi - lo, LAST - FIRST];
      if (width >= limit) [lo, hi] = [FIRST, LAST];
      else if (lo < FIRST) [lo, hi] = [FIRST, FIRST + width];
      else if (hi > LAST) [lo, hi] = [LAST - width, LAST];
    }
    this.lo = lo;
    this.hi = hi;
  }

  /** A value of the service as a number; `missing` for null: the side is open. */
  number(value, missing) {
    if (value === null || value === undefined) return missing;
    if (this.isTime) return Date.parse(this.kind === "date" ? `${value}T00:00:00Z` : value);
    return value === "Infinity" ? Infinity : value === "-Infinity" ? -Infinity : Number(value);
  }

  /** A number as a parameter: rounded outwards, so that nothing at the edge is missed; nothing for one that the type does not have. */
  parameter(value, up) {
    if (this.kind === "date") return new Date((up ? Math.ceil : Math.floor)(value / DAY) * DAY).toISOString().slice(0, 10);
    if (this.isTime) return new Date((up ? Math.ceil : Math.floor)(value)).toISOString();
    if (this.kind === "int64") return Math.abs(value) < 2 ** 63 ? String(BigInt((up ? Math.ceil : Math.floor)(value))) : "";
    const scale = /^decimal\(\d+,(\d+)\)$/.exec(this.kind);
    return scale ? ((up ? Math.ceil : Math.floor)(value * 10 ** scale[1]) / 10 ** scale[1]).toFixed(scale[1]) : String(value);
  }

  get window() {
    return `${this.parameter(this.lo, false)},${this.parameter(this.hi, true)}`;
  }

  place(value) {
    const at = ((value - this.lo) / (this.hi - this.lo)) * this.length;
    return this.flipped ? this.length - at : at;
  }

  value(place) {
    return this.lo + ((this.flipped ? this.length - place : place) / this.length) * (this.hi - this.lo);
  }

  /** Zoom by a factor (under 1: closer) around a place. */
  zoom(factor, place = this.length / 2) {
    const at = this.value(place);
    this.show(at - (at - this.lo) * factor, at + (this.hi - at) * factor);
  }

  pan(pixels) {
    const by = ((this.flipped ? -1 : 1) * pixels * (this.hi - this.lo)) / this.length;
    this.show(this.lo + by, this.hi + by);
  }

  /** Where lines stand, about `gap` pixels apart: `[{value, text, strong}]`. */
  ticks(gap) {
    const least = ((this.hi - this.lo) / this.length) * gap;
    return this.isTime ? this.#timeTicks(least) : this.#numberTicks(least);
  }

  #numberTicks(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    let step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) ?? 10 * power;
    if (this.kind === "int64") step = Math.max(1, step);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let n = Math.ceil(this.lo / step); n * step <= this.hi && found.length < 200; n++) {
      found.push({ value: n * step, text: (n * step || 0).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }), strong: false });
    }
    return found;
  }

  #timeTicks(least) {
    const [, unit, n] = STEPS.find(([length]) => length >= least) ?? STEPS[STEPS.length - 1];
    if (this.kind === "date" && !["day", "month", "year"].includes(unit)) return this.#cut("day", 1);
    return this.#cut(unit, n);
  }

  #cut(unit, n) {
    const found = [];
    let at = this.#floor(this.lo, unit, n);
    while (at <= this.hi && found.length < 300) {
      if (at >= this.lo) found.push({ value: at, ...this.#tick(at, unit) });
      at = this.#next(at, unit, n);
    }
    return found;
  }

  /** Year, month, day … of a moment, in UTC for dates, else in the reader's zone. */
  #fields(at) {
    const time = new Date(at);
    return this.kind === "date"
      ? [time.getUTCFullYear(), time.getUTCMonth(), time.getUTCDate(), 0, 0, 0, 0]
      : [time.getFullYear(), time.getMonth(), time.getDate(), time.getHours(), time.getMinutes(), time.getSeconds(), time.getMilliseconds()];
  }

  #time(year, month = 0, day = 1, hour = 0, minute = 0, second = 0, ms = 0) {
    const time = new Date(0); // the constructor takes the years 0 to 99 for 1900 to 1999
    if (this.kind === "date") {
      time.setUTCFullYear(year, month, day);
      return time.getTime();
    }
    time.setFullYear(year, month, day);
    time.setHours(hour, minute, second, ms);
    return time.getTime();
  }

  #floor(at, unit, n) {
    const [year, month, day, hour, minute, second, ms] = this.#fields(at);
    const down = (value) => Math.floor(value / n) * n;
    switch (unit) {
      case "year": return this.#time(down(year));
      case "month": return this.#time(year, down(month));
      case "day": return this.#time(year, month, down(day - 1) + 1);
      case "hour": return this.#time(year, month, day, down(hour));
      case "minute": return this.#time(year, month, day, hour, down(minute));
      case "second": return this.#time(year, month, day, hour, minute, down(second));
      default: return this.#time(year, month, day, hour, minute, second, down(ms));
    }
  }

  #next(at, unit, n) {
    const [year, month, day, hour] = this.#fields(at);
    switch (unit) {
      case "year": return this.#time(year + n);
      case "month": return this.#time(year, month + n);
      case "day": { // the days of each month are counted from its first
        const next = this.#time(year, month, day + n);
        const [, then, left] = this.#fields(next);
        return then !== month || (n > 1 && left + n / 2 > 31) ? this.#time(year, month + 1) : next;
      }
      case "hour": return this.#time(year, month, day, hour + n);
      default: return at + n * { minute: MINUTE, second: SECOND, ms: 1 }[unit];
    }
  }

  #tick(at, unit) {
    const [year, month, day, hour, minute, second, ms] = this.#fields(at);
    const two = (value) => String(value).padStart(2, "0");
    switch (unit) {
      case "year": return { text: String(year), strong: year % 100 === 0 };
      case "month": return { text: month === 0 ? String(year) : MONTHS[month], strong: month === 0 };
      case "day": return { text: day === 1 ? `${MONTHS[month]} ${month === 0 ? year : ""}`.trim() : `${day} ${MONTHS[month]}`, strong: day === 1 };
      case "hour": return { text: hour === 0 ? `${day} ${MONTHS[month]}` : `${two(hour)}:00`, strong: hour === 0 };
      case "minute": return { text: hour === 0 && minute === 0 ? `${day} ${MONTHS[month]}` : `${two(hour)}:${two(minute)}`, strong: minute === 0 };
      case "second": return { text: `${two(hour)}:${two(minute)}:${two(second)}`, strong: second === 0 };
      default: return { text: `${two(second)}.${String(ms).padStart(3, "0")}`, strong: ms === 0 };
    }
  }

  /** A value in words, as exact as the picture is. */
  words(value) {
    if (value === -Infinity) return "always";
    if (value === Infinity) return "open";
    if (this.kind === "int64") return (Math.round(value) || 0).toLocaleString("en"); // no -0
    if (!this.isTime) return value.toLocaleString("en", { maximumFractionDigits: 6 });
    const [year, month, day, hour, minute, second] = this.#fields(value);
    const two = (number) => String(number).padStart(2, "0");
    const date = `${String(year).padStart(4, "0")}-${two(month + 1)}-${two(day)}`;
    if (this.kind === "date" || this.hi - this.lo > 2 * YEAR) return date;
    return `${date} ${two(hour)}:${two(minute)}${this.hi - this.lo < HOUR ? `:${two(second)}` : ""}`;
  }
}
