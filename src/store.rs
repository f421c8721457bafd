//! A bucket in the data set: the hash, its expiry, and what of both is replicated.
//!
//! The hash has the fields that token-bucket scripts commonly keep, `tokens` and `ts`, so that a script and the module can
//! share a bucket. What is replicated are these effects, with absolute times; never the call, which would read another
//! clock on the replica and again when an append-only file is replayed.
//!
//! A missing key is a full bucket. That is why a key may expire as soon as its bucket is full, and must not before.

use std::sync::OnceLock;

use redis_token_bucket_core::{Bucket, Decision, Level, NumberText, Tokens, parse_stored_micros};

use crate::arrival;
use crate::server::{Api, Call, Error, Key, KeyKind, Mode, Text};

const WRONG_TYPE: Error =
    Error::Message(c"WRONGTYPE Operation against a key holding the wrong kind of value");
const NOT_A_BUCKET: Error = Error::Message(c"WRONGTYPE the hash at this key is not a token bucket");

/// What is added to twice the time to fill, in ms, for the expiry of a bucket that fills at once.
const EXPIRY_MARGIN_MILLIS: u64 = 1000;

/// The field names as strings of the server, made once: two allocations less per call. They are never freed; an unload
/// leaves these few bytes behind.
struct Fields {
    tokens: Text,
    ts: Text,
}

impl Fields {
    fn both(&self) -> [&Text; 2] {
        [&self.tokens, &self.ts]
    }
}

static FIELDS: OnceLock<Fields> = OnceLock::new();

/// Makes what the store keeps for all calls.
pub(crate) fn prepare(api: &'static Api) {
    FIELDS.get_or_init(|| Fields { tokens: Text::new(api, b"tokens"), ts: Text::new(api, b"ts") });
}

/// The key of a bucket, open.
pub(crate) struct Slot<'c> {
    call: &'c Call<'c>,
    key: Key<'c>,
    bucket: Option<Bucket>,
}

impl<'c> Slot<'c> {
    /// Opens the key that argument `index` names, and reads its bucket.
    ///
    /// # Errors
    /// If there is something at the key that is not a bucket.
    pub(crate) fn open(call: &'c Call<'c>, index: usize, mode: Mode) -> Result<Slot<'c>, Error> {
        Slot::read(call, call.open_key(index, mode).ok_or(Error::WrongArity)?)
    }

    fn read(call: &'c Call<'c>, key: Key<'c>) -> Result<Slot<'c>, Error> {
        let bucket = match key.kind() {
            KeyKind::Missing => None,
            KeyKind::Hash => Some(read_bucket(&key).ok_or(NOT_A_BUCKET)?),
            KeyKind::String | KeyKind::Other => return Err(WRONG_TYPE),
        };
        Ok(Slot { call, key, bucket })
    }

    /// As [`Slot::open`], but a string with redis-cell's arrival time is a bucket too. The time comes second, in µs; before
    /// the bucket is written, the string has to make way: see [`Slot::without_string`].
    pub(crate) fn open_with_arrival(
        call: &'c Call<'c>,
        index: usize,
    ) -> Result<(Slot<'c>, Option<u64>), Error> {
        let key = call.open_key(index, Mode::Write).ok_or(Error::WrongArity)?;
        let arrival = key.short_string(arrival::MAX_LEN).and_then(arrival::parse_micros);
        match arrival {
            Some(_) => Ok((Slot { call, key, bucket: None }, arrival)),
            None => Ok((Slot::read(call, key)?, None)),
        }
    }

    /// Deletes a string that is at the key, so that a bucket can be stored there.
    pub(crate) fn without_string(self) -> Slot<'c> {
        match self.key.kind() {
            KeyKind::String => Slot { key: self.key.delete(), ..self },
            _ => self,
        }
    }

    /// What is stored; `None` for a missing key.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        self.bucket
    }

    /// Stores `level`, whose decision this is, and sees that it does not expire before it is full.
    pub(crate) fn write(&self, level: &Level<'_>, decision: &Decision, now: u64) {
        let Some(fields) = FIELDS.get() else { return };
        let Bucket { tokens, at } = level.stored();
        let tokens = self.call.text(tokens.text().as_bytes());
        let ts = self.call.text(NumberText::integer(at / 1000).as_bytes());
        self.key.hash_set(fields.both(), [&tokens, &ts]);
        // A key that did not exist has no expiry yet; asking the server would cost a look-up.
        let expire_at = if self.bucket.is_some() { self.key.expire_at() } else { None };
        self.extend_expiry(expire_at, decision, now);
        self.key.signal_modified();
    }

    /// After a denial: the bucket is as before, but limits that need longer to fill than the expiry allows extend it.
    pub(crate) fn keep(&self, decision: &Decision, now: u64) {
        if self.bucket.is_some() && self.extend_expiry(self.key.expire_at(), decision, now) {
            self.key.signal_modified();
        }
    }

    /// Sets the expiry if there is none or it comes before the bucket is full, and says whether it did. Twice the time
    /// needed, so that a busy bucket writes its expiry about once per time to fill, and not at every call.
    ///
    /// Points in time are compared, not times left: these are rounded anew at each call, and a denial a moment later
    /// could seem to need a millisecond more.
    fn extend_expiry(&self, expire_at: Option<u64>, decision: &Decision, now: u64) -> bool {
        if expire_at.is_some_and(|at| at >= decision.full_at_ms) {
            return false;
        }
        let ttl = decision.reset_after_ms.saturating_mul(2).saturating_add(EXPIRY_MARGIN_MILLIS);
        self.key.set_expire_at((now / 1000).saturating_add(ttl));
        true
    }
}

fn read_bucket(key: &Key<'_>) -> Option<Bucket> {
    let [tokens, ts] = key.hash_get(FIELDS.get()?.both());
    Some(Bucket {
        tokens: Tokens::parse_stored(tokens?.as_bytes())?,
        at: parse_stored_micros(ts?.as_bytes())?,
    })
}
