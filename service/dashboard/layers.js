// A graph without circles, drawn in layers (Sugiyama, Tagawa and Toda, 1981): levels by longest path, few crossings, straight where it can be.

const ROUNDS = 6, APART = 14, LINE = 12; // between nodes; the height of an edge that passes a level

/**
 * `nodes`: [{id, height, inputs: [{of, ...}]}], where `of` is the id of another node. Returns {levels, height, places, edges}: the number of
 * levels; places by id, ({level, top}); and for each input {from, to, input, passes}: the heights at which it passes the levels between.
 */
export function layered(nodes) {
  const levels = levelsOf(nodes);
  const layers = [];
  const item = (id, level, height) => {
    const made = { id, level, height, before: [], after: [], middle: 0 };
    (layers[level] ??= []).push(made);
    return made;
  };
  const items = new Map(nodes.map(({ id, height }) => [id, item(id, levels.get(id), height)]));
  const passing = new Map(); // edges of one node pass a level together
  const edges = [];
  for (const { id, inputs } of nodes) {
    for (const input of inputs) {
      const passes = [];
      let last = items.get(input.of);
      for (let level = last.level + 1; level < levels.get(id); level++) {
        const key = `${level} ${input.of}`;
        if (!passing.has(key)) {
          passing.set(key, item(null, level, LINE));
          join(last, passing.get(key));
        }
        last = passing.get(key);
        passes.push(last);
      }
      join(last, items.get(id));
      edges.push({ from: input.of, to: id, input, passes });
    }
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const layer of layers) order(layer, "before");
    for (const layer of layers.toReversed()) order(layer, "after");
  }
  for (const layer of layers) order(layer, "before");
  for (const layer of layers) place(layer, () => 0);
  for (let round = 0; round < ROUNDS; round++) {
    for (const layer of layers.toReversed()) place(layer, (one) => mean(one.after, one.middle));
    for (const layer of layers) place(layer, (one) => mean(one.before, one.middle));
  }
  const all = layers.flat();
  const top = Math.min(...all.map((one) => one.middle - one.height / 2));
  return {
    levels: layers.length,
    height: Math.max(...all.map((one) => one.middle + one.height / 2)) - top,
    places: new Map([...items].map(([id, one]) => [id, { level: one.level, top: one.middle - one.height / 2 - top }])),
    edges: edges.map((edge) => ({ ...edge, passes: edge.passes.map((one) => one.middle - top) })),
  };
}

function levelsOf(nodes) {
  const inputs = new Map(nodes.map((node) => [node.id, node.inputs]));
  const levels = new Map();
  const level = (id) => {
    if (!levels.has(id)) levels.set(id, Math.max(-1, ...inputs.get(id).map(({ of }) => level(of))) + 1);
    return levels.get(id);
  };
  for (const { id } of nodes) level(id);
  return levels;
}

function join(before, after) {
  before.after.push(after);
  after.before.push(before);
}

const mean = (items, otherwise) => (items.length ? items.reduce((sum, one) => sum + one.middle, 0) / items.length : otherwise);

/** Sort a layer by where its neighbours at one side stand; `middle` is the position until the order is known. */
function order(layer, side) {
  for (const one of layer) one.wanted = mean(one[side], one.middle);
  layer.sort((a, b) => a.wanted - b.wanted);
  layer.forEach((one, at) => (one.middle = at / layer.length)); // layers of different lengths are comparable
}

/** Bring a layer as close to the wanted heights as its order allows: the least sum of squares, by pooling adjacent violators. */
function place(layer, wanted) {
  const pools = [];
  let offset = 0;
  for (const one of layer) {
    offset += one.height / 2;
    let pool = { sum: wanted(one) - offset, items: [[one, offset]] };
    while (pools.length && pools.at(-1).sum / pools.at(-1).items.length >= pool.sum / pool.items.length) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, items: [...before.items, ...pool.items] };
    }
    pools.push(pool);
    offset += one.height / 2 + APART;
  }
  for (const { sum, items } of pools) for (const [one, own] of items) one.middle = sum / items.length + own;
}
