import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Limit, cellKeys, slot, tenantKeys } from "../src/index.js";

const vectors = JSON.parse(readFileSync(new URL("../../vectors.json", import.meta.url), "utf8"));

test("slots are those of the vectors", () => {
  assert.ok(vectors.slots.length >= 13);
  for (const { key, slot: expected } of vectors.slots) assert.equal(slot(key), expected, key);
});

test("keys of tenants are those of the vectors", () => {
  assert.ok(vectors.tenants.length >= 200);
  for (const { tenant, route, shards, shard, tenant_key, route_key, slot: expected } of vectors.tenants) {
    const keys = tenantKeys(tenant, route, shards);
    assert.equal(keys.length, shards);
    assert.deepEqual(keys[shard], { tenant: tenant_key, route: route_key });
    assert.deepEqual([slot(tenant_key), slot(route_key)], [expected, expected]);
  }
});

test("keys of cells are those of the vectors", () => {
  assert.ok(vectors.cells.length >= 100);
  for (const { cell, shards, shard, key, slot: expected } of vectors.cells) {
    assert.equal(cellKeys(cell, shards)[shard], key);
    assert.equal(slot(key), expected);
  }
});

test("limits of shards are those of the vectors", () => {
  assert.ok(vectors.limits.length >= 70);
  for (const { limit, shards, rate, capacities, error } of vectors.limits) {
    if (error) {
      assert.throws(() => new Limit(limit).shards(shards), /less than one whole token/, limit);
      continue;
    }
    const parts = new Limit(limit).shards(shards);
    assert.deepEqual(parts.map((part) => part.capacity), capacities, limit);
    for (const part of parts) assert.equal(part.rate, rate, limit);
  }
});

test("names that the vectors refuse are refused", () => {
  for (const { tenant, route, cell } of vectors.refused) {
    assert.throws(() => (cell === undefined ? tenantKeys(tenant, route, 1) : cellKeys(cell, 1)), /must be a string/);
  }
});

test("what is not text, or no text that UTF-8 can carry, is no name", () => {
  for (const name of [undefined, null, 42, {}, ["a"]]) assert.throws(() => tenantKeys(name, "search", 1), TypeError);
  // Both would become the same three bytes.
  for (const name of ["\ud800", "\udfff"]) assert.throws(() => tenantKeys(name, "search", 1), /well-formed/);
});

test("a thousand tenants lie in more than nine hundred slots", () => {
  const slots = Array.from({ length: 1000 }, (_, i) => slot(tenantKeys(`tenant-${i}`, "search", 1)[0].route));
  assert.ok(new Set(slots).size > 900);
});

test("a limit that the server would refuse is refused", () => {
  for (const [text, why] of [
    ["", /a capacity and a rate/],
    ["50", /a capacity and a rate/],
    ["20/s", /a capacity and a rate/],
    ["-1 burst, 20/s", /capacity must/],
    [" 5 burst, 20/s", /capacity must/],
    ["9007199254740992 burst, 20/s", /capacity must/],
    ["nan burst, 20/s", /capacity must/],
    ["0x10 burst, 20/s", /capacity must/],
    ["1e-10 burst, 20/s", /capacity must/],
    ["50 burst, 0/s", /rate must/],
    ["50 burst, -1/s", /rate must/],
    ["50 burst, 20/", /rate must/],
    ["50 burst, 20/0s", /rate must/],
    ["50 burst, 20/w", /rate must/],
    ["50 burst, /s", /rate must/],
    ["50 burst, 20/1.5ms", /rate must/],
    ["50 burst, 20/s ", /rate must/],
    ["50 burst, 20/s/s", /rate must/],
    ["9007199254740991 burst, 1/s", /100 years/],
  ]) {
    assert.throws(() => new Limit(text), why, text);
  }
});
