// The names of buckets: which bytes a tenant, a route or a cell becomes, and in which cluster slot they lie. All buckets of
// a tenant carry the hash tag `{tenant}`, so one command can take from several of them at once. A big tenant has shards,
// each with a tag of its own whose slot lies in that shard's part of the slot space. `clients/vectors.json` holds what these
// functions must return.

import { Memory } from "./memory.js";

const SLOTS = 16384;

const CRC16 = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

const crc16 = (bytes) => {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) & 0xffff) ^ CRC16[(crc >> 8) ^ byte];
  return crc;
};

/** The cluster slot of a key (string or Buffer): CRC16/XMODEM of its first `{...}` that is not empty, or of all of it. */
export function slot(key) {
  const bytes = Buffer.from(key);
  const opening = bytes.indexOf("{");
  const closing = opening < 0 ? -1 : bytes.indexOf("}", opening + 1);
  return crc16(closing > opening + 1 ? bytes.subarray(opening + 1, closing) : bytes) % SLOTS;
}

/** The tenant-wide key and the route's key, one pair for each shard. */
export function tenantKeys(tenant, route, shards) {
  const name = escape("tenant", tenant);
  const routeName = escape("route", route);
  return tags(name, shards, shards > 1).map((tag, shard) => ({
    tenant: `{${tag}}:rl:_tenant:${shard}`,
    route: `{${tag}}:rl:${routeName}:${shard}`,
  }));
}

/** The keys of a cell, one for each shard. */
export function cellKeys(cell, shards) {
  return tags(`_cell.${escape("cell", cell)}`, shards, true).map((tag, shard) => `{${tag}}:rl:_cell:${shard}`);
}

/** The name with every byte that means something in a key as `%XX`. */
function escape(what, name) {
  if (typeof name !== "string" || name === "") throw new TypeError(`${what} must be a string that is not empty`);
  // Every lone surrogate would be sent as the same three bytes, so two tenants would share a bucket.
  if (!name.isWellFormed()) throw new TypeError(`${what} must be well-formed Unicode`);
  return name.replace(/[{}%:#\x00-\x20\x7f]|^_/g, (char) => {
    return `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
  });
}

// Finding the tags of n shards takes about n² steps, and every route of a tenant has the same.
const found = new Memory(1000);

function tags(name, shards, spread) {
  if (!spread) return [name];
  return found.get([name, shards], () => Array.from({ length: shards }, (_, shard) => spreadTag(name, shard, shards)));
}

/** The first of `name#shard.0`, `name#shard.1`, ... whose slot lies in this shard's part of the slot space. */
function spreadTag(name, shard, shards) {
  const low = Math.floor((shard * SLOTS) / shards);
  const high = Math.floor(((shard + 1) * SLOTS) / shards);
  for (let salt = 0; ; salt++) {
    const tag = `${name}#${shard}.${salt}`;
    const at = crc16(Buffer.from(tag)) % SLOTS;
    if (at >= low && at < high) return tag;
  }
}
