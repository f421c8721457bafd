// Servers with the module for tests: on a free port, in a directory of their own, with deadlines, killed at the end.
// RL_SERVER chooses another server than redis-server, RL_MODULE another module than target/release's.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const SERVER = process.env.RL_SERVER ?? "redis-server";
/** By default a replica waits 5 s for its copy, and is not in CLUSTER SLOTS before the first ping after that, every 10 s. */
const FOLLOW_AT_ONCE = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
const MODULE = process.env.RL_MODULE ?? path.join(root, "target/release/libredis_token_bucket.so");

/** Waits until `look` returns something true, and says what it saw last if it does not in time. */
export async function until(what, look, ms = 20_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    let seen;
    try {
      seen = await look();
      if (seen) return seen;
    } catch (error) {
      seen = error;
    }
    if (Date.now() > deadline) throw new Error(`${what}: not within ${ms} ms, last seen: ${seen}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A port that is free now, and for a node of a cluster its bus port too. */
export async function freePort(cluster = false) {
  for (;;) {
    const port = await listen(0);
    // Out of the range from which the system gives ports to connections.
    if (!cluster || port < 55_000) {
      if (!cluster || (await listen(port + 10_000).catch(() => 0))) return port;
    }
  }
}

function listen(port) {
  return new Promise((resolve, reject) => {
    const server = net.createServer().once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Server {
  static async start(options = {}) {
    const { module = true, cluster = false, port = await freePort(cluster), args = [] } = options;
    if (module && !existsSync(MODULE)) throw new Error(`no module at ${MODULE}: cargo build --release, or set RL_MODULE`);
    const server = new Server();
    server.port = port;
    server.dir = mkdtempSync(path.join(tmpdir(), "rl-node-"));
    const words = ["--port", port, "--bind", "127.0.0.1", "--dir", server.dir, "--save", "", "--appendonly", "no"];
    if (cluster) words.push("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", ...FOLLOW_AT_ONCE);
    if (module) words.push("--loadmodule", MODULE);
    server.output = "";
    server.process = spawn(SERVER, [...words.map(String), ...args]);
    for (const stream of [server.process.stdout, server.process.stderr]) stream.on("data", (text) => (server.output += text));
    server.exited = new Promise((resolve) => server.process.once("exit", resolve).once("error", resolve));
    // One that a failed test leaves behind must not outlive the tests.
    server.reap = () => server.process.kill("SIGKILL");
    process.once("exit", server.reap);
    server.admin = new Redis({ port, lazyConnect: true, retryStrategy: () => 50, maxRetriesPerRequest: null });
    server.admin.on("error", () => {});
    await until(`server on port ${port}`, async () => {
      if (server.process.exitCode !== null) throw new Error(`it ended: ${server.output}`);
      return (await server.admin.ping()) === "PONG";
    });
    return server;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** A number of INFO: `info("commandstats", "cmdstat_rl.takeall:calls")`; 0 if it is not there. */
  async info(section, name) {
    const text = await this.admin.info(section);
    const [line, field = ""] = name.split(":");
    const value = new RegExp(`^${line}:${field && `(?:.*,)?${field}=`}(\\d+)`, "m").exec(text);
    return value ? Number(value[1]) : 0;
  }

  pause() {
    this.process.kill("SIGSTOP");
  }

  resume() {
    this.process.kill("SIGCONT");
  }

  async stop() {
    this.admin.disconnect();
    this.process.kill("SIGKILL");
    await this.exited;
    process.off("exit", this.reap);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Three masters, each with a replica if `replicas`. */
export class Cluster {
  static async start({ replicas = false, module = true } = {}) {
    const cluster = new Cluster();
    const count = replicas ? 6 : 3;
    cluster.nodes = await Promise.all(Array.from({ length: count }, () => Server.start({ cluster: true, module })));
    // Each meets each: otherwise they learn of one another by gossip, which takes seconds.
    for (const [i, node] of cluster.nodes.entries()) {
      for (const { port } of cluster.nodes.slice(0, i)) await node.admin.cluster("MEET", "127.0.0.1", port, port + 10_000);
    }
    for (let i = 0; i < 3; i++) {
      const low = Math.floor((i * 16384) / 3);
      const high = Math.floor(((i + 1) * 16384) / 3);
      await cluster.nodes[i].admin.cluster("ADDSLOTS", ...Array.from({ length: high - low }, (_, slot) => low + slot));
    }
    await until("all nodes know each other", async () => {
      const known = await Promise.all(cluster.nodes.map((node) => node.admin.cluster("NODES")));
      return known.every((text) => text.trim().split("\n").length === count && !text.includes("handshake"));
    });
    for (let i = 3; i < count; i++) {
      const id = await cluster.nodes[i - 3].admin.cluster("MYID");
      await cluster.nodes[i].admin.cluster("REPLICATE", id);
    }
    await until("the cluster is whole for every node", async () => {
      const states = await Promise.all(cluster.nodes.map((node) => node.admin.cluster("INFO")));
      return states.every((text) => text.includes("cluster_state:ok") && text.includes("cluster_slots_ok:16384"));
    });
    if (replicas) {
      await until("all replicas follow", async () => {
        const links = await Promise.all(cluster.nodes.slice(3).map((node) => node.admin.info("replication")));
        return links.every((text) => text.includes("master_link_status:up"));
      });
      // A client learns of replicas from a master, which learns of them later than they do.
      await until("all masters list a replica", async () => {
        const nodes = await Promise.all(cluster.nodes.map((node) => node.admin.cluster("SLOTS")));
        return nodes.every((slots) => slots.length === 3 && slots.every((range) => range.length === 4));
      });
    }
    return cluster;
  }

  get addresses() {
    return this.nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  }

  /** The sum over all nodes. */
  async info(section, name) {
    return (await Promise.all(this.nodes.map((node) => node.info(section, name)))).reduce((sum, number) => sum + number, 0);
  }

  /** The master that serves a slot. */
  master(slot) {
    return this.nodes[[0, 1, 2].find((i) => slot < Math.floor(((i + 1) * 16384) / 3))];
  }

  async stop() {
    await Promise.all(this.nodes.map((node) => node.stop()));
  }
}
