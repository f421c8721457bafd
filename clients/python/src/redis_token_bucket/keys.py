"""The names of buckets: which bytes a tenant, a route or a cell becomes, and in which cluster slot they lie.

All buckets of a tenant carry the hash tag `{tenant}`, so one command can take from several of them at once. A tenant too
big for one node has shards, each with a tag of its own, chosen so that the shards cover the slot space evenly whatever
nodes serve it. Names are escaped: nothing a caller passes can leave its tag, be taken for another tenant, or reach the
reserved names, which start with `_`. Every helper builds the same bytes; `clients/vectors.json` says which.

>>> tenant_keys("acme", 1), route_keys("acme", "search", 1)
((b'{acme}:rl:_tenant:0',), (b'{acme}:rl:search:0',))
"""

from binascii import crc_hqx
from functools import lru_cache

from .errors import RequestError

SLOTS = 16384

_ESCAPED = {byte: b"%%%02X" % byte for byte in (*range(0x21), 0x7F, *b"{}%:#")}


def slot(key: bytes) -> int:
    """The cluster slot: CRC16/XMODEM of what stands in the first `{...}`, or of all if there is none or it is empty."""
    opening = key.find(b"{")
    closing = key.find(b"}", opening + 1)
    if opening >= 0 and closing > opening + 1:
        key = key[opening + 1 : closing]
    return crc_hqx(key, 0) % SLOTS


def tenant_keys(tenant: str, shards: int) -> tuple[bytes, ...]:
    """The tenant-wide bucket of each shard."""
    return tuple(b"{%s}:rl:_tenant:%d" % (tag, shard) for shard, tag in enumerate(_tenant_tags(tenant, shards)))


def route_keys(tenant: str, route: str, shards: int) -> tuple[bytes, ...]:
    """The bucket of the tenant on the route in each shard."""
    name = escape(route, "route")
    return tuple(b"{%s}:rl:%s:%d" % (tag, name, shard) for shard, tag in enumerate(_tenant_tags(tenant, shards)))


def cell_keys(cell: str, shards: int) -> tuple[bytes, ...]:
    """The bucket of a cell, a downstream that many tenants share, in each shard."""
    tags = _spread_tags(b"_cell." + escape(cell, "cell"), shards)
    return tuple(b"{%s}:rl:_cell:%d" % (tag, shard) for shard, tag in enumerate(tags))


def escape(name: str, what: str) -> bytes:
    """The name with every byte that means something in a key as `%XX`; `what` it names stands in the error."""
    if not name:
        raise RequestError(f"{what} must not be empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"{what} must be text that UTF-8 can hold: {error}") from error
    escaped = b"".join(_ESCAPED.get(byte) or bytes((byte,)) for byte in raw)
    return b"%5F" + escaped[1:] if escaped.startswith(b"_") else escaped


def _tenant_tags(tenant: str, shards: int) -> tuple[bytes, ...]:
    name = escape(tenant, "tenant")
    return (name,) if shards == 1 else _spread_tags(name, shards)


@lru_cache(maxsize=1024)
def _spread_tags(name: bytes, shards: int) -> tuple[bytes, ...]:
    """For each shard the first of `name#shard.0`, `name#shard.1`, ... in that shard's part of the slot space."""
    if not 1 <= shards <= SLOTS:
        raise RequestError(f"shards must be from 1 to {SLOTS}, not {shards}")
    return tuple(_spread_tag(b"%s#%d." % (name, shard), shard, shards) for shard in range(shards))


def _spread_tag(prefix: bytes, shard: int, shards: int) -> bytes:
    crc, salt = crc_hqx(prefix, 0), 0
    part = range(shard * SLOTS // shards, (shard + 1) * SLOTS // shards)
    while crc_hqx(b"%d" % salt, crc) % SLOTS not in part:
        salt += 1
    return b"%s%d" % (prefix, salt)
