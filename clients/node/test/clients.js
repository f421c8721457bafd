// Every kind of client that the limiter takes, with the one way to close it.

import { Cluster as Cluster5, Redis as Redis5 } from "ioredis";
import { Cluster as Cluster6, Redis as Redis6 } from "ioredis6";
import { createClient, createClientPool, createCluster } from "redis";
import { createClient as createClient5, createCluster as createCluster5 } from "redis5";

/** Names of clients for one server, and how to make one: `make(server, options)`. */
export const single = {
  "ioredis 5": (server, options) => ioredis(new Redis5(server.url, options)),
  "ioredis 6": (server, options) => ioredis(new Redis6(server.url, options)),
  "node-redis 5": (server, options) => nodeRedis(createClient5({ url: server.url, ...options })),
  "node-redis 6": (server, options) => nodeRedis(createClient({ url: server.url, ...options })),
};

export const pool = (server) => nodeRedis(createClientPool({ url: server.url }));

/** The same for a cluster. */
export const clusters = {
  "ioredis 5": (cluster, options) => ioredis(new Cluster5(cluster.addresses, options)),
  "ioredis 6": (cluster, options) => ioredis(new Cluster6(cluster.addresses, options)),
  "node-redis 5": (cluster, options) => nodeRedis(createCluster5({ rootNodes: rootNodes(cluster), ...options })),
  "node-redis 6": (cluster, options) => nodeRedis(createCluster({ rootNodes: rootNodes(cluster), ...options })),
};

const rootNodes = (cluster) => cluster.addresses.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));

async function ioredis(client) {
  client.on("error", () => {});
  if (client.status !== "ready") await new Promise((resolve) => client.once("ready", resolve));
  return { client, close: () => client.disconnect() };
}

async function nodeRedis(client) {
  client.on("error", () => {});
  await client.connect();
  return { client, close: () => client.destroy() };
}
