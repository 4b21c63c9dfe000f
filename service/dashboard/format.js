// Numbers, sizes, durations and times, as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NARROW = "\u00a0"; // a number and its unit stay on one line
const SIZES = ["B", "kB", "MB", "GB", "TB"];

/** With separators of thousands: 1,234,567. */
export const number = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));

/** 12,345 and 1.2M. */
export const short = (value) => (Math.abs(value) < 100_000 ? number(value) : SHORT.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1000 && unit < SIZES.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(value >= 10 ? 3 : 2)}${NARROW}${SIZES[unit]}`;
}

/** Of seconds: 1.2 µs, 35 ms, 4.1 s, 3 min, 2 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  for (const [limit, unit, factor] of [[1e-6, "ns", 1e9], [1e-3, "µs", 1e6], [1, "ms", 1e3], [120, "s", 1], [7200, "min", 1 / 60], [172800, "h", 1 / 3600]]) {
    if (seconds < limit) return `${digits(seconds * factor)}${NARROW}${unit}`;
  }
  return `${digits(seconds / 86400)} days`;
}

const digits = (value) => (value >= 100 ? WHOLE.format(value) : String(Number(value.toPrecision(2))));

export function rate(perSecond) {
  if (perSecond === null) return "–";
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : short(perSecond);
}

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Whether a text is a time as the service writes it. */
export const isTime = (value) => typeof value === "string" && ISO.test(value);

/** A time in the reader's zone, with its fraction: 2026-01-01 13:00:00.25. */
export function localTime(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  const two = (value) => String(value).padStart(2, "0");
  const fraction = (text.match(/\.(\d+)Z$/)?.[1] ?? "").replace(/0+$/, "");
  const day = `${String(time.getFullYear()).padStart(4, "0")}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}${fraction ? `.${fraction}` : ""}`;
}

export const moment = (text) => (text ? MOMENT.format(new Date(text)) : "–");

/** How long ago: 3 s, 2 min, 5 h, 4 days. */
export function ago(text, now = Date.now()) {
  if (!text) return "–";
  const seconds = Math.max(0, (now - new Date(text).getTime()) / 1000);
  return seconds < 1 ? "now" : `${duration(Math.floor(seconds))} ago`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
