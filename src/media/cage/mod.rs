//! The cage that ffmpeg works in (R50): what it may open, what it may ask of the kernel, how much it may use. Built by our
//! own binary, started a second time: it locks itself in and then becomes ffmpeg. So no line of ours runs between fork
//! and exec, and everything here is safe Rust.

mod canary;
mod files;
mod launch;
mod limits;
mod syscalls;

pub(in crate::media) use canary::BAIT;
pub(in crate::media) use canary::Level;
pub use launch::launch_if_asked;
pub(in crate::media) use launch::{CANARY, FAILED as LAUNCH_FAILED, words as launch_words};
pub(in crate::media) use limits::Limits;
