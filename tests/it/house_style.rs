//! What a machine can remember, a reviewer need not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pages::is_a_test;
use crate::support::TestDb;

/// Each query lists offenders.
const HABITS: &[(&str, &str)] = &[
    (
        "every function pins its search_path, pg_temp last",
        "select proname from pg_proc
          where pronamespace = 'euterpe'::regnamespace
            and not exists (select from unnest(proconfig) c where c like 'search_path=%pg_temp')",
    ),
    (
        "whoever counts days or weeks does so in UTC: where clocks change, some are an hour short",
        "select proname from pg_proc
          where pronamespace = 'euterpe'::regnamespace
            and (prosrc ~ 'interval ''[0-9]+ (week|month|year)' or prosrc ~ 'date_trunc' and prosrc !~ '''UTC''')
            and not exists (select from unnest(proconfig) c where c = 'TimeZone=UTC')",
    ),
    (
        "no function is overloaded: a new signature is a new version",
        "select proname from pg_proc where pronamespace = 'euterpe'::regnamespace group by proname having count(*) > 1",
    ),
    (
        "no function may be executed by public",
        "select proname from pg_proc
          where pronamespace = 'euterpe'::regnamespace
            and (proacl is null or exists (select from aclexplode(proacl) a where a.grantee = 0))",
    ),
    (
        "a public function carries its version and is security definer; a private one starts with _ and is not",
        "select proname from pg_proc
          where pronamespace = 'euterpe'::regnamespace
            and proname <> '_now' -- that of the tests reads its offset with its owner's rights
            and not (proname ~ '^_[a-z_]+$' and not prosecdef or proname ~ '^[a-z_]+_v[0-9]+$' and prosecdef)",
    ),
    (
        "arguments start with p_",
        "select p.proname || '.' || a.name
           from pg_proc p, unnest(p.proargnames, coalesce(p.proargmodes, array_fill('i'::\"char\", array[p.pronargs::int]))) a(name, mode)
          where p.pronamespace = 'euterpe'::regnamespace and a.mode = 'i' and a.name not like 'p\\_%'",
    ),
    (
        "every function has a comment",
        "select proname from pg_proc
          where pronamespace = 'euterpe'::regnamespace and obj_description(oid, 'pg_proc') is null",
    ),
    (
        "every table, view and type has a comment",
        "select relname from pg_class
          where relnamespace = 'euterpe'::regnamespace and relkind in ('r', 'p', 'v', 'c') and not relispartition
            and coalesce(obj_description(oid, 'pg_class'), obj_description(reltype, 'pg_type')) is null",
    ),
    (
        "every column has a comment",
        "select c.relname || '.' || a.attname
           from pg_class c join pg_attribute a on a.attrelid = c.oid
          where c.relnamespace = 'euterpe'::regnamespace and c.relkind in ('r', 'p', 'v', 'c') and not c.relispartition
            and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null",
    ),
    (
        "constraints are named for what must be true",
        "select conname from pg_constraint
          where connamespace = 'euterpe'::regnamespace and contype = 'c' and conname ~ '_check[0-9]*$'",
    ),
    (
        "no index of a hot table names status, lease, worker or progress",
        "select indexrelid::regclass::text from pg_index
          where indrelid in ('euterpe.inbox_jobs'::regclass, 'euterpe.job_outbox_events'::regclass)
            and pg_get_indexdef(indexrelid) ~ '\\m(status|lease_expires_at|heartbeat_at|worker_id|progress|claim_version|claim_token|line_seq)\\M'",
    ),
    (
        "no triggers",
        "select tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid
          where c.relnamespace = 'euterpe'::regnamespace and not t.tgisinternal",
    ),
    (
        "every table is durable: what was accepted outlives a crash",
        "select relname from pg_class
          where relnamespace = 'euterpe'::regnamespace and relkind in ('r', 'p') and relpersistence <> 'p'",
    ),
    (
        "no default partition: it would make detaching block",
        "select partdefid::regclass::text from pg_partitioned_table where partdefid <> 0",
    ),
];

#[tokio::test]
async fn the_database_keeps_our_habits() {
    let db = TestDb::fresh().await;
    for (habit, offenders) in HABITS {
        let rows = db.rows(offenders).await;
        let found: Vec<String> =
            rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_default()).collect();
        assert!(found.is_empty(), "{habit}: {found:?}");
    }
}

/// plpgsql_check reads every statement of every function against the tables.
#[tokio::test]
async fn plpgsql_check_finds_nothing_in_any_function() {
    let db = TestDb::fresh().await;
    let client = db.client().await;
    if let Err(error) = client.batch_execute("create extension plpgsql_check").await {
        panic!("this server has no plpgsql_check ({error}); `make setup` installs it");
    }
    let rows = client
        .query(
            "select p.proname || ' line ' || coalesce(c.lineno, 0) || ': ' || c.level || ': ' || c.message
               from pg_proc p join pg_language l on l.oid = p.prolang,
                    lateral plpgsql_check_function_tb(p.oid, extra_warnings => true, performance_warnings => false,
                                                      security_warnings => true) c
              where p.pronamespace = 'euterpe'::regnamespace and l.lanname = 'plpgsql'",
            &[],
        )
        .await
        .unwrap();
    let found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let checked: i64 = client
        .query_one(
            "select count(*) from pg_proc p join pg_language l on l.oid = p.prolang
              where p.pronamespace = 'euterpe'::regnamespace and l.lanname = 'plpgsql'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(checked > 20, "there was something to check: {checked}");
}

/// `(area/name, text)` of every function and view.
fn sql_files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let areas = fs::read_dir("sql").unwrap().map(|entry| entry.unwrap().path());
    for area in areas.filter(|path| path.is_dir() && !path.ends_with("surface")) {
        for file in fs::read_dir(area).unwrap().map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&file).unwrap();
            files.push((file, text));
        }
    }
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// One function, one file, one name; the database has no function that no file has.
#[tokio::test]
async fn files_and_functions_are_the_same_list() {
    let db = TestDb::fresh().await;
    let sql = "select proname::text from pg_proc where pronamespace = 'euterpe'::regnamespace
               union select viewname::text from pg_views where schemaname = 'euterpe'";
    let there: BTreeSet<String> = db.rows(sql).await.iter().map(|row| row.get(0)).collect();
    let files: BTreeSet<String> = sql_files().iter().map(|(path, _)| stem(path)).collect();
    assert_eq!(there, files);
}

/// A file opens with what the function is for, in the form `-- name: sentence`, and says who calls it.
#[test]
fn every_file_opens_with_its_header() {
    for (path, text) in sql_files() {
        let name = stem(&path);
        assert!(text.starts_with(&format!("-- {name}: ")), "{}: first line", path.display());
        assert!(
            text.contains("--   caller  ") || text.contains("--   reader  "),
            "{}: no caller",
            path.display()
        );
        for line in text.lines() {
            assert!(line.len() <= 130, "{}: a line of {} characters", path.display(), line.len());
        }
    }
}

/// A private function names those who call it: whoever changes it knows where to look.
#[test]
fn private_functions_name_their_callers() {
    let files = sql_files();
    for (path, text) in files.iter().filter(|(path, _)| stem(path).starts_with('_')) {
        let name = stem(path);
        let (header, _) = text.split_once("create or replace").unwrap();
        if header.contains("caller  every ") {
            continue;
        }
        for (other, caller) in &files {
            let (_, body) = caller.split_once("create or replace").unwrap();
            let calls = body.match_indices(&format!("{name}(")).any(|(at, _)| {
                !body[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
            });
            assert!(
                other == path || !calls || header.contains(&stem(other)),
                "{}: does not name its caller {}",
                path.display(),
                stem(other)
            );
        }
    }
}

/// Refusals: what SQL raises, what the README lists and what the store knows are one list.
#[test]
fn refusal_codes_are_one_list() {
    let codes = |text: &str, wanted: fn(&str) -> bool| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|word| word.len() == 5 && wanted(word)).map(str::to_owned).collect()
    };
    let is_ours = |word: &str| word.starts_with("UT") && word[2..].bytes().all(|b| b.is_ascii_digit());
    let raised: BTreeSet<String> = sql_files()
        .iter()
        .flat_map(|(_, text)| {
            text.lines().filter(|line| line.contains("errcode")).map(str::to_owned).collect::<Vec<_>>()
        })
        .flat_map(|line| codes(&line, is_ours))
        .collect();
    assert!(!raised.is_empty());
    assert_eq!(
        codes(&fs::read_to_string("src/store/error.rs").unwrap(), is_ours),
        raised,
        "src/store/error.rs"
    );
    assert_eq!(codes(&fs::read_to_string("sql/README.md").unwrap(), is_ours), raised, "sql/README.md");
    for (path, text) in sql_files() {
        let (header, body) = text.split_once("create or replace").unwrap();
        let named = codes(header, is_ours);
        let errcodes: Vec<_> = body.lines().filter(|line| line.contains("errcode")).collect();
        for code in codes(&errcodes.join("\n"), is_ours) {
            assert!(
                named.contains(&code),
                "{}: raises {code}, and its header does not say so",
                path.display()
            );
        }
    }
}

/// sql/README.md's table of functions is what the database has: name, arguments, columns, callers.
#[tokio::test]
async fn the_readme_lists_every_public_function_as_it_is() {
    let db = TestDb::fresh().await;
    let client = db.client().await;
    let rows = client
        .query(
            "select p.proname::text,
                    (select string_agg(substr(a.name, 3), ', ' order by a.nth)
                       from unnest(p.proargnames, coalesce(p.proargmodes, array_fill('i'::\"char\", array[p.pronargs::int])))
                            with ordinality a(name, mode, nth) where a.mode = 'i'),
                    coalesce((select string_agg(a.name, ', ' order by a.nth)
                       from unnest(p.proargnames, p.proargmodes) with ordinality a(name, mode, nth) where a.mode = 't'),
                       p.prorettype::regtype::text),
                    (select string_agg(replace(r.rolname, 'euterpe_', ''), ', ' order by r.rolname)
                       from pg_roles r
                      where r.rolname in ('euterpe_api', 'euterpe_transcode', 'euterpe_webhook', 'euterpe_operator', 'euterpe_readonly')
                        and has_function_privilege(r.oid, p.oid, 'execute'))
               from pg_proc p
              where p.pronamespace = 'euterpe'::regnamespace and p.proname not like '\\_%'
              order by 1",
            &[],
        )
        .await
        .unwrap();
    let expected: Vec<String> = rows
        .iter()
        .map(|row| {
            let cell = |n: usize| row.get::<_, Option<String>>(n).unwrap_or_default();
            format!("| `{}` | {} | {} | {} |", cell(0), cell(1), cell(2), cell(3))
        })
        .collect();

    let readme = fs::read_to_string("sql/README.md").unwrap();
    let listed: Vec<String> = readme
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("_v"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            format!("| {} | {} | {} | {} |", cells[1], cells[2], cells[3], cells[5])
        })
        .collect();
    assert_eq!(listed, expected, "the table should have these rows:\n{}", expected.join("\n"));
}

/// Every file of a module, however deep.
pub fn rust_files(module: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(module).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] }).collect()
}

/// Reading direction is import direction: domain knows nothing of ours, the store only the domain. SQL text
/// is in the store only.
#[test]
fn modules_import_in_reading_direction() {
    let allowed: &[(&str, &[&str])] = &[
        ("domain", &["domain"]),
        ("crypto", &["domain"]),
        ("store", &["domain", "authorities"]),
        ("worker", &["domain", "store"]),
        ("egress", &["domain", "authorities"]),
        ("storage", &["domain", "egress"]),
        ("media", &["domain", "media"]),
        ("handler", &["domain", "crypto", "store", "worker", "egress", "storage", "media", "handler"]),
        (
            "cli",
            &[
                "domain",
                "crypto",
                "store",
                "config",
                "egress",
                "handler",
                "face",
                "media",
                "authorities",
                "cli",
            ],
        ),
        ("face", &["domain", "crypto", "store", "face", "telemetry"]),
        ("dev", &["domain", "crypto", "store", "cli"]),
    ];
    for (module, may_use) in allowed {
        for path in rust_files(Path::new(&format!("src/{module}"))) {
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                if let Some(rest) = line.split("crate::").nth(1) {
                    let used: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    assert!(may_use.contains(&used.as_str()), "{}: uses crate::{used}", path.display());
                }
            }
            if *module != "store" {
                assert!(!text.contains("from euterpe."), "{}: SQL text outside the store", path.display());
            }
        }
    }
}

/// Design §5.18: whoever calls a url goes through the guard; nothing else resolves names or opens connections of its own.
/// But for the command line asking its operator's own service: that url comes from the operator, and is seldom public.
#[test]
fn only_the_egress_guard_opens_connections() {
    let ways = ["TcpStream::connect", "lookup_host", "hyper::client", "hyper_util::client", "reqwest::"];
    let uses = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        ways.iter().any(|way| text.contains(way))
    };
    let offenders: Vec<_> = rust_files(Path::new("src")).into_iter().filter(uses).collect();
    let may = |path: &PathBuf| path.starts_with("src/egress") || path == Path::new("src/cli/api.rs");
    assert!(offenders.iter().all(may), "{offenders:?}");
    assert!(!offenders.is_empty(), "there is a way out");
}

/// The mutants follow the functions they break, and name tests that exist.
#[test]
fn every_mutant_breaks_something() {
    let checked = Command::new("tests/mutants/run").arg("--check").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let tests = String::from_utf8(checked.stdout).unwrap();
    assert!(tests.lines().count() > 150, "{tests}");
    tests.lines().for_each(|test| assert!(is_a_test(test), "tests/mutants/mutants.py names {test}"));
}

/// The index of decisions has every decision, by its title.
#[test]
fn every_decision_is_in_the_index() {
    let index = fs::read_to_string("docs/adr/README.md").unwrap();
    let mut listed = index.lines().filter(|line| line.starts_with("| [")).count();
    for path in fs::read_dir("docs/adr").unwrap().map(|entry| entry.unwrap().path()) {
        let (text, name) = (fs::read_to_string(&path).unwrap(), path.file_name().unwrap().to_str().unwrap());
        let Some((number, title)) = text.lines().next().unwrap()[2..].split_once(": ") else {
            assert_eq!(name, "README.md");
            continue;
        };
        assert!(index.contains(&format!("| [{number}]({name}) | {title} |")), "{name}");
        for heading in ["## Context", "## Decision", "## Consequences"] {
            assert!(text.contains(heading), "{name}: {heading}");
        }
        listed -= 1;
    }
    assert_eq!(listed, 0, "the index lists what is there");
}

/// Every setting that the programs read is in the table of docs/deployment.md, and the table has no other.
#[test]
fn the_table_of_settings_is_what_the_source_reads() {
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("EUTERPE_")).map(str::to_owned).collect()
    };
    let mut read: BTreeSet<String> = rust_files(Path::new("src"))
        .iter()
        .flat_map(|path| names(&fs::read_to_string(path).unwrap()))
        .collect();
    assert!(read.remove("EUTERPE_CALLS"), "that one is build.rs speaking to the store");
    read.remove("EUTERPE_"); // the prefix itself
    let page = fs::read_to_string("docs/deployment.md").unwrap();
    let listed: Vec<_> = page.lines().filter(|line| line.starts_with("| `EUTERPE_")).collect();
    let listed: BTreeSet<String> =
        listed.iter().flat_map(|line| names(line.split('|').nth(1).unwrap())).collect();
    assert_eq!(listed, read);
    assert!(read.len() > 25);
}
