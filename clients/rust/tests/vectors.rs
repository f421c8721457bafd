//! The keys and shard limits that every helper builds alike: `clients/vectors.json`, written by `clients/vectors.py`.

use std::collections::HashMap;

use redis_token_bucket_client::keys::{CellKeys, KeyError, TenantKeys, slot};
use redis_token_bucket_client::limit::{Limit, LimitError};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    slots: Vec<SlotVector>,
    tenants: Vec<TenantVector>,
    cells: Vec<CellVector>,
    limits: Vec<LimitVector>,
    refused: Vec<HashMap<String, String>>,
}

#[derive(Deserialize)]
struct SlotVector {
    key: String,
    slot: u16,
}

#[derive(Deserialize)]
struct TenantVector {
    tenant: String,
    route: String,
    shards: u32,
    shard: usize,
    tenant_key: String,
    route_key: String,
    slot: u16,
}

#[derive(Deserialize)]
struct CellVector {
    cell: String,
    shards: u32,
    shard: usize,
    key: String,
    slot: u16,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LimitVector {
    Shards { limit: String, shards: u32, rate: String, capacities: Vec<String> },
    Refused { limit: String, shards: u32, error: String },
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors.json"))
        .expect("clients/vectors.json is not of the form expected")
}

#[test]
fn slots_are_those_of_the_vectors() {
    for SlotVector { key, slot: expected } in vectors().slots {
        assert_eq!(slot(key.as_bytes()), expected, "slot of {key:?}");
    }
}

#[test]
fn keys_of_tenants_are_those_of_the_vectors() {
    let vectors = vectors().tenants;
    assert!(vectors.len() >= 200, "only {} vectors", vectors.len());
    for vector in vectors {
        let keys = TenantKeys::new(&vector.tenant, vector.shards).unwrap();
        let of =
            format!("{:?} {:?}, shard {} of {}", vector.tenant, vector.route, vector.shard, vector.shards);
        assert_eq!(keys.tenant_key(vector.shard), vector.tenant_key, "tenant-wide key of {of}");
        let route_key = keys.route_key(&vector.route, vector.shard).unwrap();
        assert_eq!(route_key, vector.route_key, "route key of {of}");
        assert_eq!(slot(route_key.as_bytes()), vector.slot, "slot of the route key of {of}");
        assert_eq!(slot(vector.tenant_key.as_bytes()), vector.slot, "slot of the tenant-wide key of {of}");
    }
}

#[test]
fn keys_of_cells_are_those_of_the_vectors() {
    for vector in vectors().cells {
        let key = CellKeys::new(&vector.cell, vector.shards).unwrap().key(vector.shard);
        let of = format!("cell {:?}, shard {} of {}", vector.cell, vector.shard, vector.shards);
        assert_eq!(key, vector.key, "key of {of}");
        assert_eq!(slot(key.as_bytes()), vector.slot, "slot of {of}");
    }
}

#[test]
fn limits_of_shards_are_those_of_the_vectors() {
    for vector in vectors().limits {
        match vector {
            LimitVector::Shards { limit, shards, rate, capacities } => {
                let whole: Limit = limit.parse().unwrap();
                let parts = (0..shards).map(|index| whole.shard(index, shards).unwrap());
                for (index, (part, capacity)) in parts.zip(capacities).enumerate() {
                    assert_eq!(
                        part.capacity().to_string(),
                        capacity,
                        "capacity of {limit:?}, {index} of {shards}"
                    );
                    assert_eq!(part.rate(), rate, "rate of {limit:?}, {index} of {shards}");
                }
            }
            LimitVector::Refused { limit, shards, error } => {
                let refusal = limit.parse::<Limit>().unwrap().shard(0, shards).map(|part| part.capacity());
                assert_eq!(refusal, Err(LimitError::Shards(shards)), "{limit:?} over {shards}: {error}");
            }
        }
    }
}

#[test]
fn empty_names_are_refused_as_in_the_vectors() {
    for names in vectors().refused {
        let refusal = match (names.get("tenant"), names.get("route"), names.get("cell")) {
            (Some(tenant), Some(route), None) => {
                TenantKeys::new(tenant, 1).and_then(|keys| keys.route_key(route, 0)).unwrap_err()
            }
            (None, None, Some(cell)) => CellKeys::new(cell, 1).unwrap_err(),
            _ => panic!("neither a tenant with a route nor a cell: {names:?}"),
        };
        let (what, _) = names.iter().find(|(_, name)| name.is_empty()).expect("an empty name");
        assert_eq!(refusal.to_string(), format!("{what} must not be empty"), "{names:?}");
    }
}

#[test]
fn shards_out_of_range_are_refused() {
    for shards in [0, 16_385, u32::MAX] {
        assert_eq!(TenantKeys::new("acme", shards).err(), Some(KeyError::Shards(shards)), "tenant");
        assert_eq!(CellKeys::new("db", shards).err(), Some(KeyError::Shards(shards)), "cell");
    }
}

#[test]
fn two_names_never_share_a_key() {
    let vectors = vectors();
    let mut owners = HashMap::new();
    for TenantVector { tenant, route, shard, tenant_key, route_key, .. } in vectors.tenants {
        // Not by number of shards: a tenant's shard 0 of 2 and of 3 may well be one bucket.
        let owner = |route| (tenant.clone(), route, shard);
        for (key, owner) in [(route_key, owner(Some(route))), (tenant_key, owner(None))] {
            let first = owners.entry(key.clone()).or_insert_with(|| owner.clone());
            assert_eq!(*first, owner, "both are {key:?}");
        }
    }
    for CellVector { cell, key, .. } in vectors.cells {
        assert_eq!(owners.get(&key), None, "cell {cell:?} is {key:?}");
    }
}

#[test]
fn a_thousand_tenants_lie_in_more_than_900_slots() {
    let mut slots: Vec<u16> = (0..1000)
        .map(|number| slot(TenantKeys::new(&format!("tenant-{number}"), 1).unwrap().tenant_key(0).as_bytes()))
        .collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(slots.len() > 900, "{} slots", slots.len());
}
