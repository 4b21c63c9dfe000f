// The lanes of a timeline: where the bars of the rows in view stand, in a lane for each row or for each value of the join key.

import { toJson } from "./api.js";

export const AXIS = 26, BAR = 17, PAD = 6, STRIP = 7; // pixels
const GAP = 3;

/** A lane for each row, in the order of time: a strip for each alias, and where they meet between them. */
export function rowLanes(items, aliases) {
  items.sort((a, b) => a.meet[0] - b.meet[0] || (a.label < b.label ? -1 : 1));
  const strips = aliases.length + 1;
  return items.map((item) => {
    const top = PAD / 2;
    const half = Math.ceil(aliases.length / 2);
    const strip = (at) => top + STRIP * at;
    const parts = item.spans.map((span, at) => span && { alias: at, span, y: strip(at < half ? at : at + 1), height: STRIP, text: "", items: [item] }).filter(Boolean);
    return { id: item.id, label: item.label, height: top + STRIP * strips + PAD / 2, parts, meets: aliases.length > 1 ? [{ span: item.meet, y: strip(half), height: STRIP, item }] : [], items: [item] };
  });
}

/** A lane for each of `keys`, ({key, more}; one without a key is called `name`): each part once, however many rows it is in. `wide`: names stand beside. */
export function keyLanes(items, keys, aliases, name, wide) {
  const lanes = new Map(keys.map(({ key, more }) => [key === null ? "" : toJson(key), { key, more, items: [] }]));
  for (const item of items) {
    if (!lanes.has(item.lane)) lanes.set(item.lane, { key: item.laneKey, more: false, items: [] });
    lanes.get(item.lane).items.push(item);
  }
  return [...lanes.entries()].map(([lane, { key, more, items: own }]) => {
    const label = key === null ? name : Object.values(key).join(", ");
    const above = label && !wide ? 15 : 0;
    let y = PAD + above;
    const parts = [];
    aliases.forEach((alias, at) => {
      const unique = new Map();
      for (const item of own) {
        if (!item.spans[at]) continue;
        const id = toJson(item.row.key[alias]);
        if (unique.has(id)) unique.get(id).items.push(item);
        else unique.set(id, { alias: at, span: item.spans[at], height: BAR, text: item.words[at], items: [item] });
      }
      const rows = pack([...unique.values()]);
      for (const part of unique.values()) parts.push({ ...part, y: y + part.row * (BAR + GAP) });
      y += rows * (BAR + GAP);
    });
    const meets = aliases.length > 1 ? own.map((item) => ({ span: item.meet, y, height: STRIP, item })) : [];
    return { id: lane, label, more, above, height: Math.max(y + (meets.length ? STRIP : 0) + PAD, 34), parts, meets, items: own };
  });
}

/** Gives bars rows in which none covers another, as few as there can be; returns how many. */
function pack(parts) {
  parts.sort((a, b) => a.span[0] - b.span[0] || a.span[1] - b.span[1]);
  const ends = [];
  for (const part of parts) {
    let row = ends.findIndex((end) => end <= part.span[0]);
    if (row < 0) row = ends.length;
    ends[row] = part.span[1];
    part.row = row;
  }
  return Math.max(1, ends.length);
}
