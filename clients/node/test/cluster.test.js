import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Connection } from "../src/connection.js";
import { cellKeys, createLimiter, slot, tenantKeys } from "../src/index.js";
import { clusters } from "./clients.js";
import { Cluster, until } from "./servers.js";

const POLICY = { tenant: "100000 burst, 1/s", route: "1000 burst, 1/s", timeoutMs: 5000, onFailure: "closed" };

let tenants = 0;
const newTenant = () => `tenant-${tenants++}`;

describe("on three nodes", () => {
  let cluster;
  before(async () => (cluster = await Cluster.start()));
  after(() => cluster.stop());

  const moved = () => cluster.info("errorstats", "errorstat_MOVED:count");
  const calls = (name) => cluster.info("commandstats", `cmdstat_${name}:calls`);

  test("a command that ioredis sends by itself is redirected, and counted", async () => {
    const { client, close } = await clusters["ioredis 5"](cluster);
    const before = await moved();
    for (let i = 0; i < 50; i++) await client.call("RL.TAKE", newTenant(), "1", "1");
    assert.ok((await moved()) - before > 5);
    close();
  });

  const kinds = Object.keys(clusters).map((name) => [name, {}]);
  for (const name of ["ioredis 5", "ioredis 6"]) {
    kinds.push([name, { enableAutoPipelining: true }], [name, { keyPrefix: "app:" }], [name, { scaleReads: "slave" }]);
    kinds.push([name, { enableAutoPipelining: true, keyPrefix: "{app}:" }]);
  }
  kinds.push(["node-redis 6", { keyPrefix: "app:" }]);

  for (const [name, options] of kinds) {
    test(`1000 calls reach the right node without a redirect: ${name} ${JSON.stringify(options)}`, async () => {
      const { client, close } = await clusters[name](cluster, options);
      const limiter = createLimiter({ client, policy: { ...POLICY, cell: { name: newTenant(), limit: "90000 burst, 1/s", shards: 8 } } });
      const before = { moved: await moved(), all: await calls("rl.takeall"), take: await calls("rl.take") };
      const decisions = await Promise.all(Array.from({ length: 500 }, () => limiter.authorize(newTenant(), "search", 1)));
      assert.ok(decisions.every((decision) => decision.allowed && decision.source === "server"));
      assert.equal(await calls("rl.takeall"), before.all + 500);
      assert.equal(await calls("rl.take"), before.take + 500);
      assert.equal((await moved()) - before.moved, 0, "MOVED on any node");
      close();
    });
  }

  test("the bytes of a prefixed key are those that the client's own commands use", async () => {
    for (const [name, keyPrefix] of [["ioredis 5", "app:"], ["ioredis 6", "{x}"], ["node-redis 6", "app:"]]) {
      const { client, close } = await clusters[name](cluster, { keyPrefix });
      const tenant = newTenant();
      await createLimiter({ client, policy: POLICY }).authorize(tenant, "search", 7);
      const key = `{${tenant}}:rl:search:0`;
      const read = await (client.hGet ? client.hGet(key, "tokens") : client.hget(key, "tokens"));
      assert.equal(Math.round(Number(read)), 993, name);
      close();
    }
  });

  test("commands without an answer are counted by node, so that one that hangs is no matter to the others", async () => {
    for (const [name, connect] of Object.entries(clusters)) {
      const { client, close } = await connect(cluster);
      const connection = new Connection(client);
      for (const at of [0, 5461, 8000, 16383]) {
        assert.equal(connection.client.node(at), `127.0.0.1:${cluster.master(at).port}`, name);
      }
      close();
    }
  });

  for (const [name, connect] of Object.entries(clusters)) {
    test(`a big tenant's shards are on all nodes, and it has all its tokens: ${name}`, async () => {
      const { client, close } = await connect(cluster);
      const limiter = createLimiter({ client, policy: { ...POLICY, route: "160 burst, 0.001/s", shards: 16 } });
      const tenant = newTenant();
      const before = await Promise.all(cluster.nodes.map((node) => node.info("commandstats", "cmdstat_rl.takeall:calls")));
      let taken = 0;
      for (let i = 0; i < 1500; i++) taken += (await limiter.authorize(tenant, "search", 1)).allowed;
      assert.equal(taken, 160);
      const after = await Promise.all(cluster.nodes.map((node) => node.info("commandstats", "cmdstat_rl.takeall:calls")));
      for (const i of [0, 1, 2]) assert.ok(after[i] - before[i] >= 40, `node ${i}: ${after[i] - before[i]}`);
      close();
    });

    test(`a cell's denial on another node returns the tenant's tokens: ${name}`, async () => {
      const { client, close } = await connect(cluster);
      const cell = { name: newTenant(), limit: "1 burst, 0.001/s" };
      const limiter = createLimiter({ client, policy: { ...POLICY, cell, denialCache: false } });
      const home = cluster.master(slot(cellKeys(cell.name, 1)[0]));
      let tenant;
      do tenant = newTenant(); while (cluster.master(slot(tenantKeys(tenant, "search", 1)[0].route)) === home);
      assert.equal((await limiter.authorize(newTenant(), "search", 1)).allowed, true);
      assert.equal((await limiter.authorize(tenant, "search", 1)).reason, "cell_limit");
      const { route } = tenantKeys(tenant, "search", 1)[0];
      assert.equal(Math.round(await cluster.master(slot(route)).admin.hget(route, "tokens")), 1000);
      close();
    });
  }

  for (const [name, connect] of Object.entries(clusters)) {
    test(`a slot that moves is followed, asked where it moves to on the way: ${name}`, async () => {
      const { client, close } = await connect(cluster);
      const limiter = createLimiter({ client, policy: POLICY });
      const tenant = newTenant();
      assert.equal((await limiter.authorize(tenant, "search", 1)).source, "server");
      const { route, tenant: wide } = tenantKeys(tenant, "search", 1)[0];
      const from = cluster.master(slot(route));
      const to = cluster.nodes.find((node) => node !== from);
      const [fromId, toId] = await Promise.all([from, to].map((node) => node.admin.cluster("MYID")));
      await to.admin.cluster("SETSLOT", slot(route), "IMPORTING", fromId);
      await from.admin.cluster("SETSLOT", slot(route), "MIGRATING", toId);
      await from.admin.migrate("127.0.0.1", to.port, "", 0, 5000, "KEYS", route, wide);
      const asked = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([asked.source, asked.quota.remaining], ["server", 998], "ASK is followed");
      // Nobody has told the client.
      for (const node of [to, from, ...cluster.nodes]) await node.admin.cluster("SETSLOT", slot(route), "NODE", toId);
      const moved = await limiter.authorize(tenant, "search", 1);
      assert.deepEqual([moved.source, moved.quota.remaining], ["server", 997], "MOVED is followed");
      close();
      await to.admin.del(route, wide);
      for (const node of [from, to, ...cluster.nodes]) await node.admin.cluster("SETSLOT", slot(route), "NODE", fromId);
    });
  }
});

for (const [what, end] of [
  ["is killed", (master) => (master.process.kill("SIGKILL"), master.exited)],
  ["hangs", (master) => master.pause()],
]) {
  test(`a master that ${what} and is replaced is left by every client`, async () => {
    const cluster = await Cluster.start({ replicas: true });
    const tenant = newTenant();
    const limiters = await Promise.all(
      Object.entries(clusters).map(async ([name, connect]) => {
        const { client, close } = await connect(cluster);
        const failures = [];
        const policy = { ...POLICY, timeoutMs: 100 };
        const limiter = createLimiter({ client, policy, onUnavailable: ({ message }) => failures.push(message) });
        const served = async () => {
          if ((await limiter.authorize(tenant, "search", 1)).source === "server") return true;
          throw new Error(failures.at(-1));
        };
        await until(`${name}: a decision of the first master`, served);
        return { name, failures, served, close };
      }),
    );
    const master = cluster.master(slot(tenantKeys(tenant, "search", 1)[0].route));
    await end(master);
    await Promise.all(
      limiters.map(async ({ name, failures, served, close }) => {
        failures.length = 0;
        await assert.rejects(served, `${name}: the failures meanwhile are counted`);
        await until(`${name}: a decision of the new master`, served);
        close();
      }),
    );
    master.resume();
    await cluster.stop();
  });
}
