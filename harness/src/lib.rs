//! Throw-away servers.
