//! The names of buckets: which bytes a tenant, a route or a cell becomes, and in which cluster slot they lie.
//!
//! All buckets of a tenant carry the hash tag `{tenant}`, so one command can take from several of them at once. A tenant
//! too big for one node has shards, each with a tag of its own, chosen so that the shards cover the slot space evenly
//! whatever nodes serve it. (A shard number after the closing brace would leave every shard in one slot and spread
//! nothing.) Names are escaped: nothing a caller passes can leave its tag, be taken for another tenant, or reach the
//! reserved names, which start with `_`.
//!
//! `clients/vectors.json` holds what these functions must return, and the same for every other helper.
//!
//! ```
//! use redis_token_bucket_client::keys::{TenantKeys, slot};
//!
//! let acme = TenantKeys::new("acme", 1)?;
//! assert_eq!(acme.tenant_key(0), "{acme}:rl:_tenant:0");
//! assert_eq!(acme.route_key("search", 0)?, "{acme}:rl:search:0");
//!
//! let mega = TenantKeys::new("mega", 16)?;
//! assert_eq!(slot(mega.tenant_key(5).as_bytes()), slot(mega.route_key("search", 5)?.as_bytes()));
//! # Ok::<(), redis_token_bucket_client::keys::KeyError>(())
//! ```

use std::fmt;

/// Slots of a Redis or Valkey cluster.
pub const SLOTS: u16 = 16_384;

/// A name or a number of shards that no key can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The tenant is the empty string.
    EmptyTenant,
    /// The route is the empty string.
    EmptyRoute,
    /// The cell is the empty string.
    EmptyCell,
    /// The number of shards is not from 1 to [`SLOTS`].
    Shards(u32),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::EmptyTenant => f.write_str("tenant must not be empty"),
            KeyError::EmptyRoute => f.write_str("route must not be empty"),
            KeyError::EmptyCell => f.write_str("cell must not be empty"),
            KeyError::Shards(given) => write!(f, "shards must be from 1 to {SLOTS}, not {given}"),
        }
    }
}

impl std::error::Error for KeyError {}

/// The keys of one tenant: its hash tags, found once. Finding the tags of n shards takes about n² steps, so keep it.
#[derive(Clone, Debug)]
pub struct TenantKeys {
    tags: Box<[Box<str>]>,
}

impl TenantKeys {
    /// The keys of `tenant` with `shards` shards; 1 is a normal tenant.
    ///
    /// # Errors
    /// If the tenant is empty or the number of shards out of range.
    pub fn new(tenant: &str, shards: u32) -> Result<TenantKeys, KeyError> {
        let name = escape(tenant).ok_or(KeyError::EmptyTenant)?;
        let tags = if shards == 1 { Box::new([name.into()]) } else { spread_tags(&name, shards)? };
        Ok(TenantKeys { tags })
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.tags.len()
    }

    /// The tenant-wide bucket of shard `shard`.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn tenant_key(&self, shard: usize) -> String {
        format!("{{{}}}:rl:_tenant:{shard}", self.tags[shard])
    }

    /// The bucket of `route` in shard `shard`.
    ///
    /// # Errors
    /// If the route is empty.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn route_key(&self, route: &str, shard: usize) -> Result<String, KeyError> {
        let route = escape(route).ok_or(KeyError::EmptyRoute)?;
        Ok(format!("{{{}}}:rl:{route}:{shard}", self.tags[shard]))
    }
}

/// The keys of one cell, the shared downstream of many tenants.
#[derive(Clone, Debug)]
pub struct CellKeys {
    tags: Box<[Box<str>]>,
}

impl CellKeys {
    /// The keys of `cell` with `shards` shards.
    ///
    /// # Errors
    /// If the cell is empty or the number of shards out of range.
    pub fn new(cell: &str, shards: u32) -> Result<CellKeys, KeyError> {
        let name = escape(cell).ok_or(KeyError::EmptyCell)?;
        Ok(CellKeys { tags: spread_tags(&format!("_cell.{name}"), shards)? })
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.tags.len()
    }

    /// The bucket of shard `shard`.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn key(&self, shard: usize) -> String {
        format!("{{{}}}:rl:_cell:{shard}", self.tags[shard])
    }
}

/// The cluster slot of a key: CRC16/XMODEM of what stands in its first `{...}`, or of all of it if there is none or it is
/// empty.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|opening| {
        let rest = &key[opening + 1..];
        let closing = rest.iter().position(|&byte| byte == b'}')?;
        (closing > 0).then(|| &rest[..closing])
    });
    crc16(0, tag.unwrap_or(key)) % SLOTS
}

/// The name with every byte that means something in a key as `%XX`; `None` if it is empty.
fn escape(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut escaped = String::with_capacity(name.len());
    for (at, char) in name.char_indices() {
        match char {
            '{' | '}' | '%' | ':' | '#' | '\0'..='\x20' | '\x7f' => {
                escaped.push_str(&format!("%{:02X}", u32::from(char)));
            }
            '_' if at == 0 => escaped.push_str("%5F"),
            _ => escaped.push(char),
        }
    }
    Some(escaped)
}

/// For each shard the first of `name#shard.0`, `name#shard.1`, ... in that shard's part of the slot space.
fn spread_tags(name: &str, shards: u32) -> Result<Box<[Box<str>]>, KeyError> {
    if !(1..=u32::from(SLOTS)).contains(&shards) {
        return Err(KeyError::Shards(shards));
    }
    let slots = u32::from(SLOTS);
    let tags = (0..shards).map(|shard| {
        let part = shard * slots / shards..(shard + 1) * slots / shards;
        let mut tag = format!("{name}#{shard}.");
        let fixed = tag.len();
        let crc = crc16(0, tag.as_bytes());
        for salt in 0u64.. {
            tag.truncate(fixed);
            tag.push_str(&salt.to_string());
            if part.contains(&u32::from(crc16(crc, &tag.as_bytes()[fixed..]) % SLOTS)) {
                break;
            }
        }
        tag.into_boxed_str()
    });
    Ok(tags.collect())
}

/// CRC16/XMODEM of `bytes`, going on from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, &byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

/// What each value of the top byte adds: the polynomial x¹⁶ + x¹² + x⁵ + 1, most significant bit first.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
