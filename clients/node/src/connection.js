// The way to the server through the caller's client. A command is written to a connection once: again only after a server
// said that it did not carry it out, and not at all once its deadline has passed.

import { slot } from "./keys.js";

/** Why there is no answer. Except after `server_error` and `no_module` the command may or may not have been carried out. */
export class Failure extends Error {
  /** @param {"timeout"|"connection"|"server_error"|"no_module"} reason */
  constructor(reason, message, cause) {
    super(message, { cause });
    this.reason = reason;
  }
}

/** The time that one decision has. */
export class Deadline {
  constructor(ms) {
    this.over = false;
    this.abort = new AbortController();
    this.expired = new Promise((_, reject) => {
      // After a pause of this process the reply may be there already, unread: it is read before setImmediate.
      this.timer = setTimeout(() => setImmediate(() => {
        this.over = true;
        this.abort.abort();
        reject(new Failure("timeout", "no answer within the timeout"));
      }), ms);
    });
    this.expired.catch(() => {});
  }

  end() {
    clearTimeout(this.timer);
  }
}

const PAUSE_MS = 5;
const NOT_CARRIED_OUT = /^(TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING) /;
const NOT_CARRIED_OUT_IN_CLUSTER = /^(TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|READONLY) /;
const REDIRECTED = /^(MOVED|ASK) /;

export class Connection {
  constructor(client) {
    if (typeof client?.createBuiltinCommand === "function") this.client = new Ioredis(client);
    else if (typeof client?.sendCommand === "function" && !("getSentinelNode" in client)) this.client = new NodeRedis(client);
    else throw new TypeError("client must be an ioredis Redis or Cluster, or a node-redis client or cluster");
  }

  /** A key as it is sent, and its slot. */
  place(key) {
    const { prefix = "" } = this.client;
    const sent = Buffer.isBuffer(prefix) ? Buffer.concat([prefix, Buffer.from(key)]) : prefix + key;
    return { key: sent, slot: this.client.cluster ? slot(sent) : 0 };
  }

  /** Sends a command to the node that has its first key, and waits for the reply until the deadline. */
  async send(name, place, args, deadline) {
    const again = this.client.cluster ? NOT_CARRIED_OUT_IN_CLUSTER : NOT_CARRIED_OUT;
    for (;;) {
      const sent = this.client.send(name, place, args, deadline);
      sent.catch(() => {});
      try {
        return await Promise.race([sent, deadline.expired]);
      } catch (error) {
        if (error instanceof Failure && !error.unsent) throw error;
        if (!error.unsent && !again.test(error.message)) throw failure(error);
        const pause = new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        await Promise.race([pause, deadline.expired]);
      }
    }
  }
}

/** What an error of the client says: a server's begins with a word in capitals. */
function failure(error) {
  const { message } = error;
  if (/^ERR unknown command/i.test(message)) {
    return new Failure("no_module", "the server does not have the rate limit module loaded (RL.TAKE is unknown)", error);
  }
  return new Failure(/^[A-Z]{2,} /.test(message) ? "server_error" : "connection", message || String(error.code), error);
}

/**
 * ioredis, whose `call` finds no key in commands that it does not know. So the command is made here, with its slot, and
 * handed to `sendCommand`. It is made by `createBuiltinCommand`, and so by the caller's own version of ioredis.
 */
class Ioredis {
  constructor(client) {
    this.client = client;
    this.cluster = client.isCluster;
    this.prefix = client.options.keyPrefix;
    this.makers = new Map();
  }

  async send(name, place, args, deadline) {
    const { client } = this;
    if (client.status !== "ready") await this.ready();
    if (deadline.over) throw new Failure("timeout", "not connected within the timeout");
    const command = this.make(name, args);
    command.slot = place.slot;
    const once = writeOnce(command, deadline);
    const { reject } = command;
    // Not used when the reply is the PING's.
    const reply = client.sendCommand(command);
    if (this.cluster) {
      const redirect = command.reject;
      // A cluster would also send it again after a connection broke that may have delivered it.
      command.reject = (error) => {
        if (deadline.over || !REDIRECTED.test(error.message)) return reject.call(command, error);
        once.allowAgain();
        redirect.call(command, error);
      };
    }
    try {
      const value = await reply;
      if (once.replaced) throw new Failure("connection", "the connection broke before the reply came");
      return value;
    } catch (error) {
      if (!once.written && client.status !== "end") error.unsent = true;
      throw error;
    }
  }

  make(name, args) {
    let maker = this.makers.get(name);
    if (!maker) this.makers.set(name, (maker = this.client.createBuiltinCommand(name).string));
    // The maker passes the command to `sendCommand` of what it is called on.
    return maker.call({ options: {}, sendCommand: (command) => command }, ...args);
  }

  /** Waits for the client to be ready, rather than in its offline queue, where a command outlives its caller. */
  ready() {
    const { client } = this;
    if (client.status === "wait") client.connect().catch(() => {});
    if (client.status === "end") throw new Failure("connection", "the client is closed");
    if (client.options.enableOfflineQueue === false && client.status !== "connecting" && client.status !== "connect") {
      throw new Failure("connection", "the client is not connected");
    }
    this.waiting ??= new Promise((resolve) => {
      const done = () => {
        client.off("ready", done).off("end", done);
        this.waiting = undefined;
        resolve();
      };
      client.on("ready", done).on("end", done);
    });
    return this.waiting;
  }
}

/**
 * Sees to it that a command of ioredis is written to a connection at most once, and not after its deadline: not from an
 * offline queue, and not again after a reconnection (`autoResendUnfulfilledCommands`). A PING is written in its place, since
 * ioredis then waits for a reply.
 */
function writeOnce(command, deadline) {
  const state = { written: false, replaced: false, allowAgain: () => (state.written = false) };
  const { toWritable } = command;
  command.toWritable = function (stream) {
    if (state.written || deadline.over) {
      state.replaced = true;
      command.name = "ping";
      command.args = [];
      command.bufferMode = false;
    }
    state.written = true;
    return toWritable.call(this, stream);
  };
  return state;
}

/** node-redis: the key is a parameter of a cluster, and a signal takes a command that was not written out of the queue. */
class NodeRedis {
  constructor(client) {
    this.client = client;
    this.cluster = "nodeByAddress" in client;
    this.prefix = client._keyPrefix ?? "";
  }

  send(name, place, args, deadline) {
    const words = [name, ...args];
    const options = { abortSignal: deadline.abort.signal };
    return this.cluster
      ? this.client.sendCommand(place.key, false, words, options)
      : this.client.sendCommand(words, options);
  }
}
