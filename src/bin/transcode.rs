//! `euterpe-transcode`: does the jobs.

fn main() {}
