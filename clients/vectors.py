#!/usr/bin/env python3
"""Writes vectors.json: the keys, slots and shard limits that every helper must build, byte for byte.

It is a second implementation of the rules, on purpose: it shares no code with any helper, takes CRC16 from the standard
library and fractions from `fractions`. Run `python3 clients/vectors.py > clients/vectors.json` after the rules changed;
`python3 clients/vectors.py --check` says whether the file is what this script writes.
"""

import binascii
import json
import sys
from fractions import Fraction
from pathlib import Path

SLOTS = 16384
UNIT_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def slot(key: bytes) -> int:
    opening = key.find(b"{")
    if opening >= 0:
        closing = key.find(b"}", opening + 1)
        if closing > opening + 1:
            key = key[opening + 1 : closing]
    return binascii.crc_hqx(key, 0) % SLOTS


def escape(name: str) -> bytes:
    if not name:
        raise ValueError("empty")
    out = b""
    for at, byte in enumerate(name.encode()):
        reserved = byte in b"{}%:#" or byte <= 0x20 or byte == 0x7F or (at == 0 and byte == ord("_"))
        out += b"%%%02X" % byte if reserved else bytes([byte])
    return out


def spread_tag(name: bytes, shard: int, shards: int) -> bytes:
    """The first `name#shard.s` whose slot lies in this shard's part of the slot space."""
    low, high = shard * SLOTS // shards, (shard + 1) * SLOTS // shards
    s = 0
    while True:
        tag = b"%s#%d.%d" % (name, shard, s)
        if low <= binascii.crc_hqx(tag, 0) % SLOTS < high:
            return tag
        s += 1


def tenant_vector(tenant: str, route: str, shards: int, shard: int) -> dict:
    tag = escape(tenant) if shards == 1 else spread_tag(escape(tenant), shard, shards)
    tenant_key = b"{%s}:rl:_tenant:%d" % (tag, shard)
    route_key = b"{%s}:rl:%s:%d" % (tag, escape(route), shard)
    assert slot(tenant_key) == slot(route_key)
    return {
        "tenant": tenant,
        "route": route,
        "shards": shards,
        "shard": shard,
        "tenant_key": tenant_key.decode(),
        "route_key": route_key.decode(),
        "slot": slot(route_key),
    }


def cell_vector(cell: str, shards: int, shard: int) -> dict:
    tag = spread_tag(b"_cell." + escape(cell), shard, shards)
    key = b"{%s}:rl:_cell:%d" % (tag, shard)
    return {"cell": cell, "shards": shards, "shard": shard, "key": key.decode(), "slot": slot(key)}


def decimal(value: Fraction) -> str:
    """At most nine places, no trailing zeros."""
    nanos = value * 10**9
    assert nanos.denominator == 1, "the limits here have at most nine places"
    whole, rest = divmod(int(nanos), 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


def limit_vector(text: str, shards: int) -> dict:
    """The capacity and rate arguments of each shard. Whole tokens go round the shards in order; a fraction of a token goes
    to the shard after the last that got one more. The rate's tokens stay as written and the period grows."""
    capacity, rate = text.split(" burst, ")
    tokens, _, period = rate.partition("/")
    number = period.rstrip("msd").rstrip("h")
    unit = period[len(number) :] or "s"
    millis = Fraction(number or "1") * UNIT_MILLIS[unit] * shards
    assert millis.denominator == 1
    if millis == 1000:
        shard_rate = tokens
    elif millis % 1000 == 0:
        shard_rate = f"{tokens}/{millis // 1000}"
    else:
        shard_rate = f"{tokens}/{millis}ms"
    whole, fraction = divmod(Fraction(capacity), 1)
    each, more = divmod(whole, shards)
    if shards > 1 and each == 0:
        return {"limit": text, "shards": shards, "error": "a shard would hold no whole token"}
    parts = [
        decimal(each + (1 if shard < more else 0) + (fraction if shard == more else 0)) for shard in range(shards)
    ]
    assert sum(map(Fraction, parts)) == Fraction(capacity)
    return {"limit": text, "shards": shards, "rate": shard_rate, "capacities": parts}


def vectors() -> dict:
    plain = ["acme", "a", "tenant-42", "user.7", "ACME", "acme/eu", "0", "a" * 200, "x y", "tab\there", "line\nbreak"]
    reserved = ["{", "}", "{}", "{acme}", "a{b", "a}b", "}{", "{{x}}", "%", "%25", "%7B", "a:b", ":", "#", "a#0.0", "_",
                "__", "_tenant", "_cell.db", "%5Ftenant", "a_b", "acme_", "\x00", "\x7f", " ", "a\x00b"]
    unicode = ["é", "ñandú", "日本語", "🦀", "Ω_1", "e\u0301", "\u00a0", "\u2028", "ß{ß}"]
    names = plain + reserved + unicode
    control = [chr(byte) for byte in [*range(0x21), 0x7F]]

    tenants = [tenant_vector(name, "search", 1, 0) for name in names]
    tenants += [tenant_vector("acme", name, 1, 0) for name in names]
    tenants += [tenant_vector(f"t{byte}t", f"{byte}r", 1, 0) for byte in control]
    for tenant in ["acme", "mega", "日本語", "_odd{name}#1", "a"]:
        for shards in [2, 3, 16, 100, 256]:
            for shard in sorted({0, 1, shards // 2, shards - 1}):
                tenants.append(tenant_vector(tenant, "search", shards, shard))
    tenants += [tenant_vector("mega", "upload", 16, shard) for shard in range(16)]

    cells = [cell_vector(name, 1, 0) for name in names]
    for cell in ["db", "eu-west-1", "_tenant", "{db}", "クラウド"]:
        for shards in [2, 3, 16, 100, 256]:
            for shard in sorted({0, 1, shards // 2, shards - 1}):
                cells.append(cell_vector(cell, shards, shard))

    keys = ["foo", "123456789", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "{}", "{", "}{a}",
            "", "a}b{c}", "{é}x", "{acme}:rl:search:0"]
    texts = ["50 burst, 20/s", "10 burst, 20/s", "11 burst, 20", "3 burst, 1/s", "10.5 burst, 100/m", "100 burst, 5/15m",
             "1000 burst, 1000/1h", "16 burst, 3/250ms", "9007199254740991 burst, 9007199254740991/s", "256 burst, 0.25/s",
             "2 burst, 0.1111111111111111", "300 burst, 20/16", "1000 burst, 7/2d", "0.000000001 burst, 1/s",
             "64.000000001 burst, 1/1.5s"]
    return {
        "slots": [{"key": key, "slot": slot(key.encode())} for key in keys],
        "tenants": tenants,
        "cells": cells,
        "limits": [limit_vector(text, shards) for text in texts for shards in [1, 2, 3, 4, 16]],
        "refused": [{"tenant": "", "route": "search"}, {"tenant": "acme", "route": ""}, {"cell": ""}],
    }


def text() -> str:
    """One vector a line, so that a change shows as one."""
    groups = [
        f' {json.dumps(name)}: [\n' + ",\n".join("  " + json.dumps(row, ensure_ascii=True) for row in rows) + "\n ]"
        for name, rows in vectors().items()
    ]
    return "{\n" + ",\n".join(groups) + "\n}\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if Path(__file__).with_name("vectors.json").read_text() != text():
            sys.exit("clients/vectors.json is not what clients/vectors.py writes")
    else:
        sys.stdout.write(text())
