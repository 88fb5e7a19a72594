//! Which functions this release calls, and whether they are there: what a binary looks at before it starts.
//!
//! Not a version number: a binary cares that what it calls is there, not how new the rest is. An old pod therefore
//! boots on a newer database for as long as its functions have not been dropped.

use tokio_postgres::Config;

use super::migrate::MigrateError;
use super::tls::connect;
use super::{Result, Store, StoreError};

/// The release that a surface belongs to; patches do not change it.
pub const RELEASE: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// The functions that `src/store/` calls; `build.rs` reads them from the source.
const CALLS: &str = env!("EUTERPE_CALLS");

/// One line per function: who may call it, its arguments, its columns. `euterpe-migrate surface` prints it.
const SURFACE: &str = include_str!(concat!(
    "../../sql/surface/",
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR"),
    ".txt"
));

/// Who calls: the group role that a binary's login has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `euterpe-api`.
    Api,
    /// `euterpe-transcode`.
    Transcode,
    /// `euterpe-webhook`.
    Webhook,
    /// `euterpe`, for people.
    Operator,
}

impl Role {
    /// As in `sql/surface/` and, after `euterpe_`, in `sql/roles.sql`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Transcode => "transcode",
            Self::Webhook => "webhook",
            Self::Operator => "operator",
        }
    }
}

/// One function that a release calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function<'a> {
    /// Who may call it.
    pub roles: Vec<&'a str>,
    /// Its name without the schema.
    pub name: &'a str,
    /// Everything that is promised: name, arguments, columns.
    pub promise: &'a str,
}

impl Function<'_> {
    /// The name and types that Postgres knows it by. Names and defaults of arguments are promises, not identity.
    #[must_use]
    pub fn signature(&self) -> String {
        let arguments = self
            .promise
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'))
            .map_or("", |(list, _)| list);
        let types: Vec<_> = arguments
            .split(", ")
            .filter_map(|argument| argument.split_once(' '))
            .map(|(_, kind)| kind.trim_end_matches(" default"))
            .collect();
        format!("euterpe.{}({})", self.name, types.join(","))
    }
}

/// The functions of a file of `sql/surface/`.
pub fn functions(surface: &str) -> impl Iterator<Item = Function<'_>> {
    surface.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (roles, promise) = line.split_once(' ')?;
        let (name, _) = promise.split_once('(')?;
        Some(Function { roles: roles.split(',').collect(), name, promise })
    })
}

/// The functions that this release calls.
pub fn functions_of_this_release() -> impl Iterator<Item = Function<'static>> {
    functions(SURFACE)
}

/// How a database answers to `names`, line by line as in `sql/surface/`; a missing one has no line.
pub async fn answers(config: &Config, names: &[&str]) -> std::result::Result<Vec<String>, MigrateError> {
    const SQL: &str = "\
        select format('%s %s(%s) returns %s',
                 (select string_agg(r, ',' order by r)
                    from unnest(array['api', 'operator', 'readonly', 'transcode', 'webhook']) r
                   where has_function_privilege('euterpe_' || r, p.oid, 'execute')),
                 p.proname,
                 (select string_agg(format('%s %s%s', a.name, a.type::regtype,
                                           case when a.nth > p.pronargs - p.pronargdefaults then ' default' end),
                                    ', ' order by a.nth)
                    from unnest(p.proargtypes::oid[], p.proargnames[:p.pronargs]) with ordinality a (type, name, nth)),
                 coalesce((select string_agg(format('%s %s', a.name, a.type::regtype), ', ' order by a.nth)
                             from unnest(p.proallargtypes, p.proargnames, p.proargmodes)
                                  with ordinality a (type, name, mode, nth)
                            where a.mode = 't'),
                          p.prorettype::regtype::text)) as line
          from pg_proc p
         where p.pronamespace = to_regnamespace('euterpe') and p.proname = any ($1)
         order by p.proname, line";
    let (client, connection) = connect(config).await?;
    tokio::spawn(connection);
    Ok(client.query(SQL, &[&names]).await?.iter().map(|row| row.get("line")).collect())
}

/// The file that this release should have in `sql/surface/`, as a migrated database answers.
pub async fn of_this_release(config: &Config) -> std::result::Result<String, MigrateError> {
    let called: Vec<_> = CALLS.split(',').collect();
    let mut text =
        format!("# What release {RELEASE} calls. `make schema` writes this until the release freezes it.\n");
    for line in answers(config, &called).await? {
        text += &line;
        text.push('\n');
    }
    Ok(text)
}

fn called_by(role: Role) -> Vec<String> {
    functions_of_this_release()
        .filter(|function| function.roles.contains(&role.as_str()))
        .map(|function| function.signature())
        .collect()
}

impl Store {
    /// What `role` calls and this database lacks; empty is ready.
    pub async fn missing_functions(&self, role: Role) -> Result<Vec<String>> {
        const SQL: &str = "select f from unnest($1::text[]) f where to_regprocedure(f) is null";
        self.rows(SQL, &[&called_by(role)]).await?.iter().map(|row| Ok(row.try_get("f")?)).collect()
    }

    /// Refuses to go on when the database lacks something that `role` calls, or this login may not call it. Every binary
    /// asks this at boot, and again whenever it is asked whether it is ready.
    pub async fn check_surface(&self, role: Role) -> Result<()> {
        const SQL: &str = "\
            select current_user::text as login, f, to_regprocedure(f) is null as is_missing
              from unnest($1::text[]) f
             where has_function_privilege(to_regprocedure(f), 'execute') is not true";
        let rows = self.rows(SQL, &[&called_by(role)]).await?;
        let Some(first) = rows.first() else { return Ok(()) };
        let mut missing = Vec::new();
        for row in &rows {
            if row.try_get("is_missing")? {
                missing.push(row.try_get("f")?);
            }
        }
        if missing.is_empty() {
            let (login, function) = (first.try_get("login")?, first.try_get("f")?);
            return Err(StoreError::NotPermitted { login, function, role: role.as_str() });
        }
        Err(StoreError::FunctionsMissing(missing))
    }
}
