// What stands on the canvas of a timeline: its scale, and lanes with their bars.

import { AXIS, BAR, PAD, STRIP } from "./lanes.js";

export const FADE = 900; // ms
const FLASH = 1400;
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Draws lanes on a surface, over an axis of time. `left`: the room beside them for their names; `isOfRows`: each lane is a row. */
export class Painter {
  constructor(surface, axis) {
    this.surface = surface;
    this.axis = axis;
    this.left = 0;
    this.isOfRows = false;
  }

  /** The lanes from pixel `top` on, the `marked` ones lit; if none has rows, the text `nothing`. Returns whether something moves. */
  draw(context, width, height, now, { lanes, top, marked, nothing }) {
    const { colours } = this.surface;
    let moving = false;
    this.#grid(context, width, height);
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    for (const [at, lane] of lanes.entries()) {
      const y = AXIS + lane.y - top;
      if (y + lane.height < AXIS || y > height) continue;
      if (marked.includes(at)) {
        context.fillStyle = colours.faint;
        context.fillRect(0, y, width, lane.height);
      }
      if (!this.isOfRows && at > 0) {
        context.fillStyle = colours.line;
        context.fillRect(0, Math.round(y), width, 1);
      }
      context.save();
      context.beginPath();
      context.rect(this.left, Math.max(AXIS, y), width - this.left, lane.height);
      context.clip();
      for (const part of lane.parts) moving = this.#bar(context, part, colours.series[part.alias % 8], y, now) || moving;
      for (const meet of lane.meets) moving = this.#meet(context, meet, y, now) || moving;
      context.restore();
      if (this.isOfRows) this.#beside(context, lane, y, now);
      else this.#label(context, lane, y);
    }
    context.restore();
    if (lanes.every((lane) => !lane.items.length)) this.#nothing(context, width, height, nothing);
    return moving && !still.matches;
  }

  #grid(context, width, height) {
    const { colours } = this.surface;
    context.font = this.surface.font(11);
    context.textBaseline = "middle";
    let free = 0;
    for (const tick of this.axis.ticks(width < 500 ? 64 : 84)) {
      const x = Math.round(this.left + this.axis.place(tick.value));
      context.fillStyle = colours.line;
      context.fillRect(x, AXIS - 4, 1, height - AXIS + 4);
      if (x < free || x > width - 12) continue;
      context.fillStyle = tick.strong ? colours.text : colours.dim;
      context.textAlign = "left";
      context.fillText(tick.text, x + 4, AXIS / 2);
      free = x + 4 + context.measureText(tick.text).width + 8;
    }
    context.fillStyle = colours.line;
    context.fillRect(0, AXIS - 1, width, 1);
  }

  #nothing(context, width, height, text) {
    context.font = this.surface.font(13);
    context.fillStyle = this.surface.colours.dim;
    context.textAlign = "center";
    context.fillText(text, width / 2, AXIS + (height - AXIS) / 2);
  }

  /** From where to where a span is drawn; open ends go beyond the edge. */
  across([start, end]) {
    const [a, b] = [start === -Infinity ? -8 : this.axis.place(start), end === Infinity ? this.axis.length + 8 : this.axis.place(end)];
    const [from, to] = [Math.max(-8, a), Math.min(this.axis.length + 8, b)];
    return [this.left + from, Math.max(1.5, to - from)];
  }

  #bar(context, part, colour, y, now) {
    const [x, width] = this.across(part.span);
    if (x > this.surface.width || x + width < this.left) return false;
    const [alpha, flash, moving] = shade(part.items, now);
    const tall = part.height > STRIP;
    context.globalAlpha = alpha * (tall ? 0.24 : 0.9);
    context.fillStyle = colour;
    context.fillRect(x, y + part.y, width, part.height);
    if (tall) {
      context.globalAlpha = alpha;
      context.fillRect(x, y + part.y, Math.min(2, width), part.height);
      const room = x + width - Math.max(x, this.left) - 8;
      if (room > 22) {
        context.fillStyle = this.surface.colours.text;
        context.font = this.surface.font(11);
        context.textAlign = "left";
        context.fillText(clipped(context, part.text, room), Math.max(x, this.left) + 5, y + part.y + part.height / 2 + 0.5);
      }
    }
    this.#flash(context, flash, x, y + part.y, width, part.height);
    context.globalAlpha = 1;
    return moving;
  }

  #meet(context, meet, y, now) {
    if (!(meet.span[0] <= meet.span[1])) return false;
    const [x, width] = this.across(meet.span);
    if (x > this.surface.width || x + width < this.left) return false;
    const [alpha, flash, moving] = shade([meet.item], now);
    context.globalAlpha = alpha * (this.isOfRows ? 1 : 0.75);
    context.fillStyle = this.surface.colours.meet;
    context.fillRect(x, y + meet.y, width, meet.height);
    this.#flash(context, flash, x, y + meet.y, width, meet.height);
    context.globalAlpha = 1;
    return moving;
  }

  #flash(context, flash, x, y, width, height) {
    if (!flash) return;
    context.globalAlpha = flash;
    context.strokeStyle = this.surface.colours.born;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, width + 2, height + 2);
  }

  /** What a row is called: behind its bars, or before them, or where neither has room over them. */
  #beside(context, lane, y, now) {
    const { colours, width } = this.surface;
    const places = lane.parts.map((part) => this.across(part.span));
    const [from, to] = [Math.min(...places.map(([x]) => x)), Math.max(...places.map(([x, long]) => x + long))];
    context.font = this.surface.font(12);
    context.textAlign = "left";
    context.globalAlpha = shade(lane.items, now)[0];
    const label = clipped(context, lane.label, Math.max(220, 0.45 * width));
    const long = context.measureText(label).width;
    const middle = y + lane.height / 2;
    let x = to + 7;
    if (x + long > width - 6) x = from - 7 - long;
    if (x < 6) {
      x = Math.max(6, Math.min(from + 6, width - long - 6));
      context.fillStyle = colours.panel;
      context.fillRect(x - 5, middle - 9, Math.min(long, width - 12) + 10, 18);
    }
    context.fillStyle = colours.text;
    context.fillText(label, x, middle);
    context.globalAlpha = 1;
  }

  #label(context, lane, y) {
    if (!lane.label) return;
    const { colours } = this.surface;
    context.font = this.surface.font(12, 600);
    context.textAlign = "left";
    context.fillStyle = colours.text;
    if (this.left) context.fillText(clipped(context, lane.label, this.left - 18), 8, y + PAD + BAR / 2);
    else if (lane.above) context.fillText(clipped(context, lane.label, this.surface.width - 16), 6, y + lane.above / 2 + 3);
    if (lane.more && this.left) {
      context.font = this.surface.font(11);
      context.fillStyle = colours.dim;
      context.fillText("and more", 8, y + PAD + BAR / 2 + 15);
    }
  }
}

/** How strong, how new, and whether that changes: of what several rows show. */
function shade(items, now) {
  if (still.matches) return [items.every((item) => item.gone) ? 0 : 1, 0, false];
  const left = items.every((item) => item.gone) ? Math.max(...items.map((item) => item.gone)) : 0;
  const born = items.every((item) => item.born) ? Math.min(...items.map((item) => item.born)) : 0;
  const fading = left ? Math.max(0, 1 - (now - left) / FADE) : 1;
  const flash = born ? Math.max(0, 1 - (now - born) / FLASH) : 0;
  return [fading, flash, (left > 0 && fading > 0) || flash > 0];
}

function clipped(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

