//! A future that is polled only when it has asked for it, whatever else its task is woken for: what rarely has something
//! to say then costs a message next to nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes the task and remembers it.
#[derive(Debug, Default)]
struct WakeFlag {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// Lets futures poll_on_wake, one after the other.
#[derive(Debug, Default)]
pub(super) struct WakeGate(Arc<WakeFlag>);

/// See [`WakeGate::poll_on_wake`].
#[derive(Debug)]
pub(super) struct PolledOnWake<'d, F> {
    wake_gate: &'d WakeGate,
    future: F,
}

impl WakeGate {
    /// The same as `future`, which is polled the first time and then whenever it has woken its task.
    pub(super) fn poll_on_wake<F: Future + Unpin>(&self, future: F) -> PolledOnWake<'_, F> {
        self.0.rung.store(true, Ordering::Relaxed);
        PolledOnWake { wake_gate: self, future }
    }
}

impl<F: Future + Unpin> Future for PolledOnWake<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let WakeGate(alarm) = self.wake_gate;
        // Before the look: an alarm that rings in between wakes the task once more.
        alarm.task.register(cx.waker());
        if !alarm.rung.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let waker = Waker::from(alarm.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn it_is_polled_at_first_and_when_it_has_asked() {
        let (wake_gate, polls, asked) = (WakeGate::default(), Cell::new(0), RefCell::new(None::<Waker>));
        let mut polled_on_wake = wake_gate.poll_on_wake(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            *asked.borrow_mut() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let mut look = || Pin::new(&mut polled_on_wake).poll(&mut Context::from_waker(Waker::noop())).is_pending();
        assert!(look() && look() && look());
        assert_eq!(polls.get(), 1);
        asked.take().unwrap().wake();
        assert!(look() && look());
        assert_eq!(polls.get(), 2);
    }

    #[tokio::test]
    async fn whoever_wakes_it_wakes_the_task() {
        let wake_gate = WakeGate::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { sender.send(7) });
        let polled_on_wake = wake_gate.poll_on_wake(receiver);
        assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(60), polled_on_wake).await.unwrap(), Ok(7));
    }
}
