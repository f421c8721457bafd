import assert from "node:assert/strict";
import { test } from "node:test";
import { Memory } from "../src/memory.js";

test("what is used stays, what is not is forgotten, and no more than so many are kept", () => {
  const memory = new Memory(100);
  const used = memory.get(["used"], () => ({}));
  const once = memory.get(["once"], () => ({}));
  for (let i = 0; i < 1000; i++) {
    assert.equal(memory.get(["used"], () => ({})), used);
    memory.get(["other", i], () => ({}));
    assert.ok(memory.size <= 100, `${memory.size}`);
  }
  assert.notEqual(memory.get(["once"], () => ({})), once);
});

test("names that look alike when joined are kept apart", () => {
  const memory = new Memory(100);
  const values = [["a", "b,c"], ["a,b", "c"], ['a","b', "c"], ["a", 1], ["a", "1"], ["__proto__"]].map((names) => memory.get(names, () => names));
  assert.equal(new Set(values).size, 6);
});

test("a name that is always used is found as quickly when the memory is full", () => {
  const memory = new Memory(65_536);
  for (let i = 0; i < 65_536; i++) memory.get([`tenant-${i}`], () => ({}));
  const started = performance.now();
  for (let i = 0; i < 100_000; i++) memory.get(["hot"], () => ({}));
  // A tenth of a second; by deletion from one Map it was 20 s.
  assert.ok(performance.now() - started < 4000, `${performance.now() - started} ms`);
});
