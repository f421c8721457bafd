// What is kept of names that anybody may think up: as much as a process can bear, the latest used.

/**
 * Keeps at least the last `count` / 2 values that were used, and at most `count`. In two generations: what is used moves to
 * the young one, and when that is full the old one is dropped. (To delete and set a Map's entry again at each use, the usual
 * way, takes ever longer for the same name: V8 looks through what was deleted until it grows the Map.)
 */
export class Memory {
  #count;
  #young = new Map();
  #old = new Map();

  constructor(count) {
    this.#count = count;
  }

  get size() {
    return this.#young.size + this.#old.size;
  }

  /** The value of these names, by `make` if it is not known. */
  get(names, make) {
    const id = JSON.stringify(names);
    let value = this.#young.get(id);
    if (value === undefined) {
      value = this.#old.get(id) ?? make();
      if (this.#young.size >= this.#count / 2) [this.#old, this.#young] = [this.#young, new Map()];
      this.#young.set(id, value);
    }
    return value;
  }
}
