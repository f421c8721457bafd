//! Commands as one would type them.

use redis::{Cmd, ConnectionLike, FromRedisValue, RedisResult};

/// Sends commands written as a line.
pub trait Ask {
    /// Sends `line`, split at blanks, and reads the reply as `T`.
    ///
    /// # Errors
    /// The server's error, or a reply of another shape.
    fn try_ask<T: FromRedisValue>(&mut self, line: &str) -> RedisResult<T>;

    /// As [`Ask::try_ask`].
    ///
    /// # Panics
    /// On an error, naming the command.
    #[track_caller]
    fn ask<T: FromRedisValue>(&mut self, line: &str) -> T {
        self.try_ask(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Sends `line` and returns the error that must come, as the server wrote it.
    ///
    /// # Panics
    /// If there is no error from the server.
    #[track_caller]
    fn ask_error(&mut self, line: &str) -> String {
        match self.try_ask::<redis::Value>(line) {
            Err(error) => {
                error_text(&error).unwrap_or_else(|| panic!("{line}: not the server's error: {error}"))
            }
            Ok(reply) => panic!("{line}: an error was expected, the reply is {reply:?}"),
        }
    }
}

impl<C: ConnectionLike> Ask for C {
    fn try_ask<T: FromRedisValue>(&mut self, line: &str) -> RedisResult<T> {
        let mut cmd = Cmd::new();
        for word in line.split_whitespace() {
            cmd.arg(word);
        }
        cmd.query(self)
    }
}

/// The error line of a server, code first.
fn error_text(error: &redis::RedisError) -> Option<String> {
    let code = error.code()?;
    Some(match error.detail() {
        Some(detail) => format!("{code} {detail}"),
        None => code.to_owned(),
    })
}
