"use strict";

// The report, and the patterns in it, unpacked on demand.

const report = JSON.parse(document.getElementById("report").textContent);
const tokenCount = report.labels.length;
const mapCount = report.maps.length;

/** Unpacked maps, oldest first; a few are kept, because a long text has megabytes of each. */
const unpacked = new Map();
const UNPACKED_LIMIT = 8;

/**
 * A map as compressed rows: row q has keys[start[q]..start[q + 1]] with as many weights, the largest of which is rowMax[q]; keys
 * that are not stored have rest[q] on average.
 */
function unpack(index) {
  const known = unpacked.get(index);
  if (known) return known;
  const bytes = atob(report.maps[index]);
  let at = 0;
  const integer = () => {
    let value = 0;
    let place = 1;
    let byte;
    do {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * place;
      place *= 128;
    } while (byte > 127);
    return value;
  };
  const start = new Uint32Array(tokenCount + 1);
  const keys = [];
  const weights = [];
  for (let query = 0; query < tokenCount; query++) {
    let next = 0;
    for (let left = integer(); left > 0; left--) {
      next += integer();
      keys.push(next++);
      weights.push(integer() / report.unit);
    }
    start[query + 1] = keys.length;
  }
  const map = { start, keys: Uint32Array.from(keys), weights: Float32Array.from(weights), rowMax: null, rest: null };
  map.rowMax = Float32Array.from({ length: tokenCount }, (_, query) =>
    map.weights.subarray(start[query], start[query + 1]).reduce((most, weight) => Math.max(most, weight), 0));
  map.rest = Float32Array.from({ length: tokenCount }, (_, query) => {
    const row = map.weights.subarray(start[query], start[query + 1]);
    const missing = (report.causal ? query + 1 : tokenCount) - row.length;
    const lost = Math.max(0, 1 - row.reduce((sum, weight) => sum + weight, 0));
    return missing > 0 ? Math.min(lost / missing, ceiling(map, query)) : 0;
  });
  if (unpacked.size >= UNPACKED_LIMIT) unpacked.delete(unpacked.keys().next().value);
  unpacked.set(index, map);
  return map;
}

/** What a weight of a row that is not stored is at most: the least of a full row, else the floor. */
function ceiling(map, query) {
  const row = map.weights.subarray(map.start[query], map.start[query + 1]);
  return row.length === report.most ? row.reduce((least, weight) => Math.min(least, weight), 1) : report.floor;
}

/** The weight of one pair; 0 where none is stored. */
function weightAt(map, query, key) {
  let low = map.start[query];
  let high = map.start[query + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (map.keys[middle] < key) low = middle + 1;
    else high = middle;
  }
  return low < map.start[query + 1] && map.keys[low] === key ? map.weights[low] : 0;
}

/** What a token looks at, or with forward false what looks at it: [token, weight] in order of place. */
function partners(map, token, forward) {
  const found = [];
  if (forward) {
    for (let at = map.start[token]; at < map.start[token + 1]; at++) found.push([map.keys[at], map.weights[at]]);
  } else {
    for (let query = 0; query < tokenCount; query++) {
      const weight = weightAt(map, query, token);
      if (weight > 0) found.push([query, weight]);
    }
  }
  return found;
}

/** The strongest of some partners, earlier ones first among equals. */
function strongest(found, count) {
  return [...found].sort((left, right) => right[1] - left[1] || left[0] - right[0]).slice(0, count);
}

/** A weight of a map's row as people read it. */
function shown(weight, map, query) {
  if (weight > 0) return weight.toFixed(3);
  const most = ceiling(map, query);
  return most > report.floor ? `${most.toFixed(3)} or less` : `below ${report.floor}`;
}

/** "layer 1, head 3" of a map. */
function headName(index) {
  const heads = report.heads.length;
  return `layer ${report.layers[Math.floor(index / heads)]}, head ${report.heads[index % heads]}`;
}

/** Whether a causal mask forbids the pair. */
function masked(query, key) {
  return report.causal && key > query;
}

/** A new element with text, and nothing but text, inside. */
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
