//! What the module is loaded with: `loadmodule libredis_token_bucket.so name value [name value ...]`.
//!
//! Every option, its values and the words that refuse others are in this file. A module that does not understand all of
//! its arguments refuses to load: a typing error must not leave a server running without what it was meant to do.
//! Names and values are read without regard to case, as in the server's own configuration.

use crate::request::{MAX_HOT_KEYS, whole_number};

/// The options, each as given or by default.
#[derive(Debug)]
pub(crate) struct Options {
    /// Whether `CL.THROTTLE` is registered. Off by default: redis-cell may be loaded beside this module.
    pub(crate) cl_throttle: bool,
    /// How many keys RL.HOT tells at most; 0 is off. Where the server has settings of modules, the default of `rl.hot-keys`.
    pub(crate) hot_keys: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options { cl_throttle: false, hot_keys: 64 }
    }
}

/// One option.
struct Entry {
    name: &'static str,
    /// What may follow the name, for people.
    values: &'static str,
    /// Sets it; `None` if the value is none of those.
    set: fn(&mut Options, &[u8]) -> Option<()>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "cl-throttle",
        values: "yes|no",
        set: |options, value| {
            options.cl_throttle = yes_or_no(value)?;
            Some(())
        },
    },
    Entry {
        name: "hot-keys",
        values: "0..1024",
        set: |options, value| {
            options.hot_keys = whole_number(value, 0..=MAX_HOT_KEYS)?;
            Some(())
        },
    },
];

impl Options {
    /// Reads names and values in turn.
    ///
    /// # Errors
    /// A sentence for the server's log, if a name is unknown or given twice, or its value is missing or wrong.
    pub(crate) fn parse(arguments: &[&[u8]]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut seen = Vec::new();
        for pair in arguments.chunks(2) {
            let [name, value @ ..] = pair else { continue };
            let Some(entry) = ENTRIES.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
            else {
                return Err(format!("unknown argument '{}'; known: {}", name.escape_ascii(), all_entries()));
            };
            let Entry { name, values, set } = entry;
            if seen.contains(name) {
                return Err(format!("argument {name} is given twice"));
            }
            seen.push(name);
            let Some(value) = value.first() else {
                return Err(format!("argument {name} lacks its value: {name} {values}"));
            };
            set(&mut options, value)
                .ok_or_else(|| format!("argument {name} must be {values}, not '{}'", value.escape_ascii()))?;
        }
        Ok(options)
    }
}

/// `name values` of each, separated by commas.
fn all_entries() -> String {
    let each: Vec<String> = ENTRIES.iter().map(|entry| format!("{} {}", entry.name, entry.values)).collect();
    each.join(", ")
}

fn yes_or_no(value: &[u8]) -> Option<bool> {
    [("yes", true), ("no", false)]
        .into_iter()
        .find_map(|(word, meaning)| value.eq_ignore_ascii_case(word.as_bytes()).then_some(meaning))
}
