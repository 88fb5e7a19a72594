//! What a server is, asked of its catalog alone: it answers before Euterpe is there.

use jiff::Timestamp;

use super::{Result, Store, StoreError};

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// For people.
    pub version: String,
    /// For comparisons: 150004 is 15.4.
    pub version_number: i32,
    /// Its clock, the real one.
    pub now: Timestamp,
    /// As whom we are there.
    pub login: String,
    /// Our group roles.
    pub roles: Vec<GroupRole>,
}

/// One of our group roles.
#[derive(Debug, Clone)]
pub struct GroupRole {
    /// With its `euterpe_`.
    pub name: String,
    /// It exists.
    pub is_there: bool,
    /// The login has it.
    pub is_ours: bool,
}

impl Store {
    /// Version, clock, login and roles.
    pub async fn server_facts(&self) -> Result<ServerFacts> {
        const SERVER: &str = "\
            select current_setting('server_version') as version, clock_timestamp() as now,
                   current_setting('server_version_num')::integer as version_number, current_user::text as login";
        const ROLES: &str = "\
            select name, to_regrole(name) is not null as is_there,
                   coalesce(pg_has_role(to_regrole(name)::oid, 'member'), false) as is_ours
              from unnest(array['euterpe_owner', 'euterpe_api', 'euterpe_transcode', 'euterpe_webhook',
                                'euterpe_operator', 'euterpe_readonly']) name";
        let roles = self.rows(ROLES, &[]).await?;
        let roles = roles.iter().map(|row| {
            Ok(GroupRole {
                name: row.try_get("name")?,
                is_there: row.try_get("is_there")?,
                is_ours: row.try_get("is_ours")?,
            })
        });
        let roles = roles.collect::<Result<_>>()?;
        // The clock is asked last: the first call opened the connection, and that took its time.
        let rows = self.rows(SERVER, &[]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnexpectedAnswer("no row".into()))?;
        Ok(ServerFacts {
            version: row.try_get("version")?,
            version_number: row.try_get("version_number")?,
            now: row.try_get("now")?,
            login: row.try_get("login")?,
            roles,
        })
    }
}
