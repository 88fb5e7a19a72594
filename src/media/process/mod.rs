//! One program in the cage, from its start to its end: watched all the time, stopped whenever its caller is dropped, and
//! always reaped.

mod end;
mod keeper;
mod progress;
mod spawn;
mod tail;
mod watch;

pub use end::NO_ROOM;
pub(super) use keeper::{Finished, Keeper, Speaks, Work};
pub(super) use progress::Beat;
