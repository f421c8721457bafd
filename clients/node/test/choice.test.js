import assert from "node:assert/strict";
import { test } from "node:test";
import { Bucket } from "../src/bucket.js";
import { order } from "../src/choice.js";
import { Limit } from "../src/limit.js";

function target(text, shards) {
  const keys = Array.from({ length: shards }, (_, index) => ({ key: `k${index}`, slot: 0 }));
  return { bucket: new Bucket("route", keys), rule: { parts: new Limit(text).shards(shards) } };
}

for (const capacity of ["10", "11", "10.5", "160"]) {
  test(`full shards of a capacity of ${capacity} are asked equally often`, () => {
    const first = [0, 0, 0, 0];
    for (let i = 0; i < 4000; i++) first[order([target(`${capacity} burst, 10/s`, 4)], 1, 0)[0]]++;
    assert.ok(first.every((times) => times > 850 && times < 1150), `1000 each expected: ${first}`);
  });
}

test("of two shards the one with more left is asked first, whichever was cut larger", () => {
  const one = target("11 burst, 0.001/s", 2);
  one.bucket.saw(0, one.rule.parts[0], 1, { allowed: true, remaining: 4 }, 0);
  for (let i = 0; i < 100; i++) assert.deepEqual(order([one], 1, 0), [1, 0]);
});
