import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { single } from "./clients.js";
import { Server } from "./servers.js";

const root = fileURLToPath(new URL("..", import.meta.url));
let dir, server;
before(async () => {
  dir = mkdtempSync(path.join(tmpdir(), "rl-pack-"));
  server = await Server.start();
});
after(async () => {
  rmSync(dir, { recursive: true, force: true });
  await server.stop();
});

test("the packed package, installed into an empty project, limits", async () => {
  const npm = (args, cwd) => execFileSync("npm", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const [{ filename, files }] = Object.values(JSON.parse(npm(["pack", "--json", "--pack-destination", dir], root)));
  const names = files.map((file) => file.path).sort();
  const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  assert.equal(filename, `redis-token-bucket-${version}.tgz`);
  for (const name of ["LICENSE", "README.md", "package.json", "src/index.js", "src/index.d.ts", "src/express.d.ts", "src/fastify.d.ts"]) {
    assert.ok(names.includes(name), `${name} in ${names}`);
  }
  assert.ok(names.every((name) => name.startsWith("src/") || ["LICENSE", "README.md", "package.json"].includes(name)), `${names}`);

  const project = path.join(dir, "project");
  execFileSync("mkdir", [project]);
  writeFileSync(path.join(project, "package.json"), '{ "type": "module", "private": true }');
  // Nothing else is needed, and nothing fetched: its peers are optional.
  npm(["install", "--offline", "--no-audit", "--no-fund", path.join(dir, filename)], project);
  writeFileSync(path.join(project, "use.js"), 'export * from "redis-token-bucket";\nexport { rateLimit } from "redis-token-bucket/express";\nexport { default as plugin } from "redis-token-bucket/fastify";\n');
  const { createLimiter, rateLimit, plugin } = await import(pathToFileURL(path.join(project, "use.js")));
  assert.deepEqual([typeof rateLimit, typeof plugin], ["function", "function"]);

  const { client, close } = await single["ioredis 5"](server);
  const policy = { tenant: "1000 burst, 1/s", route: "2 burst, 0.001/s", timeoutMs: 5000, onFailure: "closed" };
  const limiter = createLimiter({ client, policy });
  const allowed = [];
  for (let i = 0; i < 3; i++) allowed.push((await limiter.authorize("acme", "search")).allowed);
  assert.deepEqual(allowed, [true, true, false]);
  close();
});
