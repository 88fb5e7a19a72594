//! Children are started from one thread that lives as long as the process. The kernel's "kill me when my parent dies" means
//! the parent's *thread*: started from a pool, ffmpeg would be killed when that thread idles out.

use std::io;
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: LazyLock<Option<Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    let work = move || {
        for mut order in inbox {
            let _in_runtime = order.runtime.enter();
            // When nobody waits for it any more, the child is dropped here, and killed with that.
            let _ = order.answer.send(order.command.spawn());
        }
    };
    thread::Builder::new().name("spawner".into()).spawn(work).ok().map(|_| orders)
});

/// Starts `command`.
pub(super) async fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("there is no thread to start programs from");
    let (answer, child) = oneshot::channel();
    let order = Order { command, runtime: Handle::current(), answer };
    SPAWNER.as_ref().ok_or_else(gone)?.send(order).map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}
