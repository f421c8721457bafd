//! The module's commands: a line each, which is all that a new one needs here.

use harness::redis::Value;

/// What follows a command's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `key capacity rate [cost]`
    Take,
    /// `key capacity rate amount`
    Settle,
    /// `key capacity rate cost [key capacity rate cost ...]`
    Stack,
    /// `key max_burst count period [quantity]`
    Throttle,
    /// `[DENIED] [COUNT n]` or `RESET`
    Hot,
}

/// A command, and what is known of its replies.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// What an accepted call answers.
    pub(crate) shape: fn(&Value) -> Result<Verdict, String>,
    /// Whether an allowed call takes what it asks for, and so counts against the bound of a bucket.
    pub(crate) takes: bool,
    /// Whether buckets whose grants are counted may meet it: it never adds tokens.
    pub(crate) keeps_bound: bool,
}

/// Whether an accepted call was allowed.
pub(crate) type Verdict = bool;

pub(crate) const COMMANDS: &[Command] = &[
    Command { name: "RL.TAKE", form: Form::Take, shape: decision, takes: true, keeps_bound: true },
    Command { name: "RL.PEEK", form: Form::Take, shape: decision, takes: false, keeps_bound: true },
    Command { name: "RL.TAKEALL", form: Form::Stack, shape: stack, takes: true, keeps_bound: true },
    Command { name: "RL.GIVE", form: Form::Settle, shape: settled, takes: false, keeps_bound: false },
    Command { name: "RL.CHARGE", form: Form::Settle, shape: settled, takes: false, keeps_bound: true },
    Command { name: "CL.THROTTLE", form: Form::Throttle, shape: throttle, takes: true, keeps_bound: false },
    Command { name: "RL.HOT", form: Form::Hot, shape: hot, takes: false, keeps_bound: false },
];

/// The largest integer in a reply.
const MAX: i64 = 9_007_199_254_740_991;

fn integers<const N: usize>(items: &[Value]) -> Result<[i64; N], String> {
    let numbers: Option<Vec<i64>> =
        items.iter().map(|item| if let Value::Int(number) = item { Some(*number) } else { None }).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| format!("not {N} integers"))
}

fn items(reply: &Value) -> Result<&[Value], String> {
    if let Value::Array(items) = reply { Ok(items) } else { Err("not an array".to_owned()) }
}

fn bucket(reply: &Value) -> Result<[i64; 4], String> {
    let numbers @ [allowed, remaining, retry, reset] = integers(items(reply)?)?;
    let sound = (0..=1).contains(&allowed)
        && (0..=MAX).contains(&remaining)
        && (-1..=MAX).contains(&retry)
        && (0..=MAX).contains(&reset);
    if sound { Ok(numbers) } else { Err("an integer is out of range".to_owned()) }
}

pub(crate) fn decision(reply: &Value) -> Result<Verdict, String> {
    let [allowed, _, retry, _] = bucket(reply)?;
    if (allowed == 1) == (retry == 0) {
        Ok(allowed == 1)
    } else {
        Err("allowed and retry disagree".to_owned())
    }
}

fn settled(reply: &Value) -> Result<Verdict, String> {
    let [allowed, remaining, retry, _] = bucket(reply)?;
    match (allowed, remaining >= 1, retry == 0) {
        (1, true, true) | (1, false, false) => Ok(true),
        _ => Err("allowed, remaining and retry disagree".to_owned()),
    }
}

fn stack(reply: &Value) -> Result<Verdict, String> {
    let [allowed, retry, buckets @ ..] = items(reply)? else { return Err("too short".to_owned()) };
    let [allowed, retry] = integers(&[allowed.clone(), retry.clone()])?;
    let mut longest = Some(0);
    for bucket_reply in buckets {
        decision(bucket_reply)?;
        longest = match bucket(bucket_reply)?[2] {
            -1 => None,
            wait => longest.map(|longest: i64| longest.max(wait)),
        };
    }
    let sound = retry == longest.unwrap_or(-1) && (allowed == 1) == (retry == 0) && !buckets.is_empty();
    if sound { Ok(allowed == 1) } else { Err("the stack and its buckets disagree".to_owned()) }
}

fn throttle(reply: &Value) -> Result<Verdict, String> {
    let [limited, limit, remaining, retry, reset] = integers(items(reply)?)?;
    // Allowed and never are both -1.
    let sound = (0..=1).contains(&limited)
        && (0..=limit).contains(&remaining)
        && (-1..=MAX).contains(&retry)
        && (0..=MAX).contains(&reset)
        && (limited == 1 || retry == -1);
    if sound { Ok(limited == 0) } else { Err("an integer is out of range".to_owned()) }
}

fn hot(reply: &Value) -> Result<Verdict, String> {
    if let Value::Okay = reply {
        return Ok(true);
    }
    if let Value::SimpleString(text) = reply {
        return if text == "OK" { Ok(true) } else { Err("not OK".to_owned()) };
    }
    let mut last = i64::MAX;
    for entry in items(reply)? {
        let [Value::BulkString(key), numbers @ ..] = items(entry)? else { return Err("no key".to_owned()) };
        let [count, error, key_len] = integers(numbers)?;
        let sound =
            (1..=last).contains(&count) && (0..=count).contains(&error) && key_len >= key.len() as i64;
        if !sound {
            return Err("an entry is out of order or range".to_owned());
        }
        last = count;
    }
    Ok(true)
}
