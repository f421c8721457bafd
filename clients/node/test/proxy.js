// A proxy before a server that can lose replies, and a server of scripted replies.

import net from "node:net";

/**
 * Forwards connections to a server. While `losing`, an answer to an RL command is dropped and its connection closed. Between
 * `hold` and `release` new connections are accepted, and nothing is forwarded.
 */
export class Proxy {
  static async start(server, port = 0) {
    const proxy = new Proxy();
    proxy.losing = false;
    proxy.lost = 0;
    proxy.pattern = /\$\d+\r\nrl\./i;
    proxy.sockets = new Set();
    proxy.held = undefined;
    proxy.listener = net.createServer((client) => {
      const upstream = net.connect(server.port, "127.0.0.1");
      let asked = false;
      for (const socket of [client, upstream]) {
        proxy.sockets.add(socket);
        socket.on("error", () => {}).on("close", () => {
          proxy.sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
      }
      client.on("data", (data) => {
        asked ||= proxy.pattern.test(data);
        if (proxy.held) proxy.held.push(() => upstream.write(data));
        else upstream.write(data);
      });
      upstream.on("data", (data) => {
        if (proxy.losing && asked) {
          proxy.lost++;
          proxy.losing = false;
          client.destroy();
        } else {
          client.write(data);
        }
      });
    });
    await new Promise((resolve) => proxy.listener.listen(port, "127.0.0.1", resolve));
    proxy.port = proxy.listener.address().port;
    return proxy;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  hold() {
    this.held = [];
    for (const socket of this.sockets) socket.destroy();
  }

  release() {
    const writes = this.held;
    this.held = undefined;
    for (const write of writes) write();
  }

  async stop() {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.listener.close(resolve));
  }
}

/** Answers RL commands with these replies, one after the other, and everything else with OK. Remembers what it was asked. */
export async function scripted(replies) {
  const script = { commands: [], sockets: new Set() };
  script.listener = net.createServer((socket) => {
    script.sockets.add(socket);
    socket.on("error", () => {}).on("data", (data) => {
      for (const [, name] of data.toString().matchAll(/\*\d+\r\n\$\d+\r\n([^\r]+)/g)) {
        if (!/^rl\./i.test(name)) {
          socket.write("+OK\r\n");
          continue;
        }
        script.commands.push(name.toUpperCase());
        socket.write(replies.shift() ?? "-ERR no more replies\r\n");
      }
    });
  });
  await new Promise((resolve) => script.listener.listen(0, "127.0.0.1", resolve));
  script.port = script.listener.address().port;
  script.url = `redis://127.0.0.1:${script.port}`;
  script.stop = async () => {
    for (const socket of script.sockets) socket.destroy();
    await new Promise((resolve) => script.listener.close(resolve));
  };
  return script;
}
