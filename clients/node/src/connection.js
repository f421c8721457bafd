// The way to the server through the caller's client. A command is written to a connection once: again only after a server
// said that it did not carry it out, and not at all once its deadline has passed.

import { slot } from "./keys.js";

/** Why there is no answer. Except after `server_error` and `no_module` the command may or may not have been carried out. */
export class Failure extends Error {
  /**
   * @param {"timeout"|"connection"|"server_error"|"no_module"} reason
   * @param unsent whether the command was surely not sent, and may be
   */
  constructor(reason, message, cause, unsent = false) {
    super(message, { cause });
    this.reason = reason;
    this.unsent = unsent;
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
        reject(new Failure("timeout", "no answer within the timeout"));
        this.abort.abort();
      }), ms);
    });
    this.expired.catch(() => {});
  }

  end() {
    clearTimeout(this.timer);
  }
}

/** The pause before a command is sent again that was not carried out. */
const PAUSE_MS = 5;
/**
 * How many commands a node may leave without an answer after their deadlines. Clients keep them until the connection breaks,
 * which can be many minutes; with no bound, a server that hangs would fill the memory of every service that asks it.
 */
const MAX_UNANSWERED = 1000;
/** How often at most a cluster client is made to ask for the slots. */
const ASK_SLOTS_MS = 1000;
const NOT_CARRIED_OUT = /^(TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING) /;
const NOT_CARRIED_OUT_IN_CLUSTER = /^(TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|READONLY) /;
const REDIRECTED = /^(MOVED|ASK) /;

export class Connection {
  constructor(client) {
    if (typeof client?.createBuiltinCommand === "function") this.client = new Ioredis(client);
    else if (typeof client?.sendCommand === "function" && !("getSentinelNode" in client)) this.client = new NodeRedis(client);
    else throw new TypeError("client must be an ioredis Redis or Cluster, or a node-redis client or cluster");
    this.unanswered = new Map();
  }

  /** A key as it is sent, and its slot. */
  place(key) {
    const sent = (this.client.prefix ?? "") + key;
    return { key: sent, slot: this.client.cluster ? slot(sent) : 0 };
  }

  /** Sends a command to the node that has its first key, and waits for the reply until the deadline. */
  async send(name, place, args, deadline) {
    const again = this.client.cluster ? NOT_CARRIED_OUT_IN_CLUSTER : NOT_CARRIED_OUT;
    for (;;) {
      const node = this.client.cluster ? this.client.node(place.slot) : undefined;
      let failed = this.#full(node);
      if (!failed) {
        const sent = this.client.send(name, place, args, deadline);
        sent.catch(() => {});
        try {
          return await Promise.race([sent, deadline.expired]);
        } catch (error) {
          failed = failure(error);
        }
        if (deadline.over) this.#count(node, sent);
      }
      if (failed.reason === "timeout" || failed.reason === "connection") this.client.silent(place);
      if (!failed.unsent && !again.test(failed.message)) throw failed;
      const pause = new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      await Promise.race([pause, deadline.expired]).catch(() => {});
      if (deadline.over) throw failed;
    }
  }

  #full(node) {
    if ((this.unanswered.get(node) ?? 0) < MAX_UNANSWERED) return undefined;
    return new Failure("timeout", `${MAX_UNANSWERED} commands are without an answer`);
  }

  /** Counts a command as one without an answer, until the client has done with it. */
  #count(node, sent) {
    const add = (number) => this.unanswered.set(node, (this.unanswered.get(node) ?? 0) + number);
    add(1);
    sent.catch(() => {}).then(() => add(-1));
  }
}

/**
 * Says whether it is time to ask a cluster for its slots again. A node that hangs, or that is gone, does not say that another
 * has taken its place, and not all clients ask by themselves.
 */
function seldom() {
  let at = -Infinity;
  return () => performance.now() - at >= ASK_SLOTS_MS && ((at = performance.now()), true);
}

/** What an error of the client says: a server's begins with a word in capitals. */
function failure(error) {
  if (error instanceof Failure) return error;
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
    this.seldom = seldom();
  }

  async send(name, place, args, deadline) {
    const { client } = this;
    if (client.status !== "ready") await this.ready();
    if (client.status !== "ready") throw new Failure("connection", `the client is not connected: ${client.status}`);
    if (deadline.over) throw new Failure("timeout", "not connected within the timeout");
    const command = this.make(name, args);
    command.slot = place.slot;
    const once = writeOnce(command, deadline);
    const { reject } = command;
    const reply = client.sendCommand(command);
    if (this.cluster) {
      // What a cluster does with an error by itself includes sending the command again after a broken connection that may
      // have delivered it. Only redirections are left to it.
      const redirect = command.reject;
      command.reject = (error) => {
        if (deadline.over || !REDIRECTED.test(error.message)) return reject.call(command, error);
        once.written = false;
        redirect.call(command, error);
      };
    }
    let value;
    try {
      value = await reply;
    } catch (error) {
      if (once.written) throw error;
      throw new Failure("connection", error.message, error, true);
    }
    if (once.replaced) throw new Failure("connection", "the connection broke before the reply came");
    return value;
  }

  silent() {
    if (this.cluster && this.seldom()) this.client.refreshSlotsCache(() => {});
  }

  node(slot) {
    return this.client.slots[slot]?.[0];
  }

  make(name, args) {
    let maker = this.makers.get(name);
    if (!maker) this.makers.set(name, (maker = this.client.createBuiltinCommand(name).string));
    // The maker passes the command to `sendCommand` of what it is called on.
    return maker.call({ options: {}, sendCommand: (command) => command }, ...args);
  }

  /**
   * Waits for a client that connects for the first time, until it has or could not. One that has lost its server is not
   * waited for; and nothing is put in its offline queue, where a command would outlive its caller.
   */
  ready() {
    const { client } = this;
    if (client.status === "wait") client.connect().catch(() => {});
    if (!["wait", "connecting", "connect"].includes(client.status)) return undefined;
    this.waiting ??= new Promise((resolve) => {
      const done = () => {
        client.off("ready", done).off("close", done);
        this.waiting = undefined;
        resolve();
      };
      client.on("ready", done).on("close", done);
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
  const state = { written: false, replaced: false };
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
    this.prefix = client._keyPrefix;
    this.seldom = seldom();
  }

  /** A command that a random node is sent is answered MOVED by the others, and then a cluster asks for the slots. */
  silent({ key }) {
    if (!this.cluster || !this.seldom()) return;
    const options = { abortSignal: AbortSignal.timeout(ASK_SLOTS_MS) };
    this.client.sendCommand(undefined, false, ["RL.PEEK", key, "1", "1"], options).catch(() => {});
  }

  node(slot) {
    return this.client.slots[slot]?.master.address;
  }

  async send(name, place, args, deadline) {
    const words = [name, ...args];
    const options = { abortSignal: deadline.abort.signal };
    if (this.cluster) return this.client.sendCommand(place.key, false, words, options);
    if (this.client.isReady === false) throw new Failure("connection", "the client is not connected");
    return this.client.sendCommand(words, options);
  }
}
