//! `euterpe-transcode`: does the jobs.

use euterpe::media::launch_if_asked;

fn main() {
    launch_if_asked();
}
