//! Two releases run on one database at once (docs/rolling-upgrades.md): what a release calls stays there until nobody
//! calls it, and replacing functions under load fails nobody.

use std::collections::BTreeSet;
use std::fs;

use euterpe::store::StoreError;
use euterpe::store::surface::{self, Role};

use crate::schema::keep;
use crate::support::{TestDb, bare_database};

/// Written anew by `make schema` until the release; from then on the next test keeps it true.
#[tokio::test]
async fn the_surface_file_of_this_release_is_what_it_calls() {
    let db = TestDb::fresh().await;
    let file = surface::of_this_release(&db.config()).await.unwrap();
    keep(&format!("sql/surface/{}.txt", surface::RELEASE), &file);

    let called: BTreeSet<_> = surface::functions(&file).map(|function| function.name.to_owned()).collect();
    let mut in_source = BTreeSet::new();
    for entry in fs::read_dir("src/store").unwrap() {
        for rest in fs::read_to_string(entry.unwrap().path()).unwrap().split("euterpe.").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if name.contains("_v") && rest[name.len()..].starts_with('(') {
                in_source.insert(name);
            }
        }
    }
    assert_eq!(called, in_source, "called and there");
}

/// Every file of `sql/surface/` is a release whose pods may still run: same arguments, same columns, and whoever could
/// call a function still can.
#[tokio::test]
async fn every_release_that_may_still_run_is_answered() {
    let db = TestDb::fresh().await;
    let mut releases = 0;
    for entry in fs::read_dir("sql/surface").unwrap() {
        let (path, mut functions) = (entry.unwrap().path(), 0);
        let file = fs::read_to_string(&path).unwrap();
        let names: Vec<_> = surface::functions(&file).map(|function| function.name).collect();
        let answers = surface::answers(&db.config(), &names).await.unwrap().join("\n");
        for promised in surface::functions(&file) {
            let kept = surface::functions(&answers).any(|answer| {
                answer.promise == promised.promise
                    && promised.roles.iter().all(|role| answer.roles.contains(role))
            });
            assert!(kept, "{}: nothing answers to {promised:?}", path.display());
            functions += 1;
        }
        assert!(functions > 20, "{}: {functions} functions", path.display());
        releases += 1;
    }
    assert!(releases > 0);
}

#[tokio::test]
async fn a_binary_that_lacks_a_function_says_which_and_what_to_do() {
    let db = TestDb::fresh().await;
    for role in [Role::Api, Role::Transcode, Role::Webhook, Role::Operator] {
        let login = format!("euterpe_{}", role.as_str());
        db.store_as(&login, 1).check_surface(role).await.unwrap();
    }
    db.run("drop function euterpe.heartbeat_jobs_v1").await;
    let refused = db.store_as("euterpe_transcode", 1).check_surface(Role::Transcode).await.unwrap_err();
    let StoreError::FunctionsMissing(missing) = &refused else { panic!("{refused:?}") };
    assert_eq!(missing, &["euterpe.heartbeat_jobs_v1(text,uuid[],bigint[],uuid[],jsonb[],integer)"]);
    assert!(refused.to_string().contains("run euterpe-migrate of this release"), "{refused}");
    // Others do not call it, and go on.
    db.store_as("euterpe_webhook", 1).check_surface(Role::Webhook).await.unwrap();
}

#[tokio::test]
async fn on_a_database_without_euterpe_everything_is_missing() {
    let database = bare_database().await;
    let store = euterpe::store::Store::connect(database.config(), 1);
    let missing = store.missing_functions(Role::Webhook).await.unwrap();
    assert!(missing.len() >= 9, "{missing:?}");
    // The demo's worker looks before it works.
    let refused = euterpe::dev::demo_worker(database.config()).await.unwrap_err();
    assert!(refused.to_string().contains("euterpe.claim_jobs_v1(text,text,integer,integer)"), "{refused}");
}
