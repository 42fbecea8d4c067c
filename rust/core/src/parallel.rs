//! The only place that starts threads.
//!
//! Threads live inside [`std::thread::scope`] and end before the call returns, so a process that
//! forks later inherits no pool, no lock and no half-finished work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::{Error, Result};

/// Lets a caller stop a long call.
///
/// The thread that made it polls the caller's question; all others only look at the flag it raises.
pub struct Interrupt<'a> {
    poll: &'a (dyn Fn() -> bool + Sync),
    raised: AtomicBool,
    owner: ThreadId,
}

impl<'a> Interrupt<'a> {
    /// An interrupt that `poll` raises by answering `true`.
    pub fn new(poll: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self {
            poll,
            raised: AtomicBool::new(false),
            owner: thread::current().id(),
        }
    }

    /// An interrupt that nobody raises.
    #[must_use]
    pub fn never() -> Self {
        Self::new(&|| false)
    }

    /// Returns [`Error::Interrupted`] once the caller wants the work to stop.
    ///
    /// Call it between pieces of work of about a millisecond or more.
    pub fn check(&self) -> Result<()> {
        if thread::current().id() == self.owner && (self.poll)() {
            self.raised.store(true, Ordering::Relaxed);
        }
        if self.raised.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}

/// Applies `work` to every item on up to `threads` threads; answers come in the order of the items.
///
/// Each item has its own outcome: what to do with several failures is the caller's decision. An
/// interrupt ends the call as a whole.
pub fn map<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    interrupt: &Interrupt<'_>,
    work: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    consume(items, threads, interrupt, || (), |(), item| work(item))
}

/// As [`map`], with items that are used up, and with a `desk` for each thread, which goes from item
/// to item.
pub fn consume<I: Send, S, T: Send>(
    items: impl IntoIterator<Item = I, IntoIter: ExactSizeIterator + Send>,
    threads: usize,
    interrupt: &Interrupt<'_>,
    desk: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, I) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    let items = items.into_iter();
    let count = items.len();
    let queue = Mutex::new(items.enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let worker = || {
        let mut desk = desk();
        loop {
            let next = lock(&queue).next();
            let Some((index, item)) = next else { break };
            interrupt.check()?;
            let outcome = work(&mut desk, item);
            lock(&done).push((index, outcome));
        }
        Ok(())
    };
    // The calling thread works too: it alone can see the caller's interrupt.
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // Where the system has no thread to give, the queue is emptied by those that are there.
            if thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker()
    })?;
    interrupt.check()?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Hands every item to `work` on up to `threads` threads: for pieces of an answer to be filled.
///
/// The first failure, by the order of the items, is the call's.
pub fn each<I: Send>(
    items: Vec<I>,
    threads: usize,
    interrupt: &Interrupt<'_>,
    work: impl Fn(I) -> Result<()> + Sync,
) -> Result<()> {
    let outcomes = consume(items, threads, interrupt, || (), |(), item| work(item))?;
    outcomes.into_iter().collect()
}

/// A thread that panics leaves no list half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn answers_keep_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [1, 2, 7] {
            let got = map(&items, threads, &Interrupt::never(), |&i| Ok(i * i)).unwrap();
            assert!(
                got.into_iter()
                    .zip(0..)
                    .all(|(square, i)| square.unwrap() == i * i)
            );
        }
    }

    #[test]
    fn an_interrupt_ends_the_call() {
        // How many items fall to the calling thread, and so how often it asks, is chance where there
        // are others: alone it is told in the middle, beside others from the start.
        for (threads, patience) in [(1, 3), (2, 0)] {
            let calls = AtomicUsize::new(0);
            let poll = || calls.fetch_add(1, Ordering::Relaxed) >= patience;
            let got = map(&[(); 1000], threads, &Interrupt::new(&poll), |()| Ok(()));
            assert!(matches!(got, Err(Error::Interrupted)));
        }
    }

    #[test]
    fn each_item_is_handed_over_once() {
        let mut answer = [0; 1000];
        for threads in [1, 2, 7] {
            let items = answer.iter_mut().zip(1..).collect();
            let fill = |(place, value): (&mut i32, i32)| {
                *place += value;
                Ok(())
            };
            each(items, threads, &Interrupt::never(), fill).unwrap();
        }
        assert!(answer.iter().zip(1..).all(|(&got, value)| got == 3 * value));
        let failed = each(vec![3, 1, 2], 2, &Interrupt::never(), |i| {
            Err(Error::argument(format!("{i}")))
        });
        assert_eq!(failed.unwrap_err().to_string(), "3");
    }

    #[test]
    fn one_failure_leaves_the_others_standing() {
        let got = map(&[1, 2, 3], 2, &Interrupt::never(), |&i| {
            if i == 2 {
                Err(Error::argument("two"))
            } else {
                Ok(i)
            }
        });
        let got = got.unwrap();
        assert!(got[0].is_ok() && got[1].is_err() && got[2].is_ok());
    }
}
