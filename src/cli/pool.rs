//! `pool:` of the configuration, and the flags for it.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use super::values;
use crate::config::{Code, MapReader};
use crate::proxy::PoolSettings;

/// What docward may do with the credentials of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CredentialsPolicy {
    /// Log in again by itself as a user whose login it has relayed. The key is kept in memory only.
    Keep,
    /// Open connections only with the logins of clients.
    Forget,
}

const CREDENTIALS: [(&str, CredentialsPolicy); 2] =
    [("keep", CredentialsPolicy::Keep), ("forget", CredentialsPolicy::Forget)];

/// `pool:`; each key is optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PoolKeys {
    /// The key is there, or a flag for it.
    pub(super) is_on: bool,
    size: Option<usize>,
    reserve: Option<usize>,
    max_wait: Option<Duration>,
    idle_timeout: Option<Duration>,
    max_lifetime: Option<Duration>,
    credentials: Option<CredentialsPolicy>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pool of server connections")]
pub(super) struct PoolArguments {
    /// Share server connections between clients: at most this many for each member and user [default: each client has
    /// its own].
    #[arg(long, value_name = "COUNT", value_parser = values::count)]
    pool_size: Option<usize>,
    /// Connections of these that only transactions in progress, and one login, may use [default: a tenth of the size].
    #[arg(long, value_name = "COUNT", value_parser = values::count, requires = "pool_size")]
    pool_reserve: Option<usize>,
    /// How long a request waits for a server connection before it is rejected [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "pool_size")]
    pool_max_wait: Option<Duration>,
    /// Close server connections that were not used for this time [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "pool_size")]
    pool_idle_timeout: Option<Duration>,
    /// Replace server connections that are this old [default: 1h].
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "pool_size")]
    pool_max_lifetime: Option<Duration>,
    /// Whether docward keeps a key, in memory, to log in again as the clients' users [default: keep].
    #[arg(long, value_name = "POLICY", requires = "pool_size")]
    pool_credentials: Option<CredentialsPolicy>,
}

impl PoolArguments {
    /// The settings of the flags, otherwise of the file.
    pub(super) fn with_defaults_from(&self, file: PoolKeys) -> PoolKeys {
        PoolKeys {
            is_on: file.is_on || self.pool_size.is_some(),
            size: self.pool_size.or(file.size),
            reserve: self.pool_reserve.or(file.reserve),
            max_wait: self.pool_max_wait.or(file.max_wait),
            idle_timeout: self.pool_idle_timeout.or(file.idle_timeout),
            max_lifetime: self.pool_max_lifetime.or(file.max_lifetime),
            credentials: self.pool_credentials.or(file.credentials),
        }
    }
}

impl PoolKeys {
    pub(super) fn from_reader(mut reader: MapReader<'_, '_, '_>) -> Self {
        let size = reader.integer_in("size", 2..=i64::MAX);
        let reserve = reader.integer_in("reserve", 1..=i64::MAX);
        if let Some(reserve) = &reserve {
            let size = size.as_ref().map_or(PoolSettings::SIZE as i64, |size| size.value);
            if reserve.value >= size {
                let message = format!("`reserve` must be less than `size`, which is {size}");
                reader.context().error(Code::InvalidValue, reserve.span, message);
            }
        }
        let mut duration = |key| reader.duration(key).map(|duration| duration.value);
        let (max_wait, idle_timeout, max_lifetime) =
            (duration("max_wait"), duration("idle_timeout"), duration("max_lifetime"));
        let credentials = reader.choice("credentials", &CREDENTIALS).map(|policy| policy.value);
        reader.finish();
        let count = |found: Option<i64>| found.and_then(|count| usize::try_from(count).ok());
        Self {
            is_on: true,
            size: count(size.map(|size| size.value)),
            reserve: count(reserve.map(|reserve| reserve.value)),
            max_wait,
            idle_timeout,
            max_lifetime,
            credentials,
        }
    }

    /// A router shares connections in any case.
    pub(super) fn for_topology(self, is_router: bool) -> Self {
        Self { is_on: self.is_on || is_router, ..self }
    }

    pub(super) fn keeps_credentials(self) -> bool {
        self.credentials != Some(CredentialsPolicy::Forget)
    }

    /// The settings; `None` if each client has a server connection of its own.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn settings(self) -> Result<Option<PoolSettings>> {
        if !self.is_on {
            return Ok(None);
        }
        let size = self.size.unwrap_or(PoolSettings::SIZE);
        let reserve = self.reserve.unwrap_or_else(|| PoolSettings::reserve_of(size));
        ensure!(size >= 2, "--pool-size must be at least 2: one connection is reserved for transactions in progress");
        ensure!(reserve < size, "--pool-reserve must be less than the size of the pool, which is {size}");
        Ok(Some(PoolSettings {
            size,
            reserve,
            max_wait: self.max_wait.unwrap_or(PoolSettings::MAX_WAIT),
            idle_timeout: self.idle_timeout.unwrap_or(PoolSettings::IDLE_TIMEOUT),
            max_lifetime: self.max_lifetime.unwrap_or(PoolSettings::MAX_LIFETIME),
            keep_credentials: self.keeps_credentials(),
        }))
    }
}
