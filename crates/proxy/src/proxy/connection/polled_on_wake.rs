//! A future that is polled only after it has woken its task, not on other wake-ups of the task. So rarely ready
//! futures cost a message almost nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes the task and records that it did.
#[derive(Debug, Default)]
struct WakeFlag {
    woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// Wraps futures, one at a time, so that each is polled once at first and then only after it has woken its task.
#[derive(Debug, Default)]
pub(in crate::proxy) struct WakeGate(Arc<WakeFlag>);

/// See [`WakeGate::poll_on_wake`].
#[derive(Debug)]
pub(in crate::proxy) struct PolledOnWake<'d, F> {
    wake_gate: &'d WakeGate,
    future: F,
}

impl WakeGate {
    /// Wraps `future`, which is polled the first time and then whenever it has woken its task.
    pub(in crate::proxy) fn poll_on_wake<F: Future + Unpin>(&self, future: F) -> PolledOnWake<'_, F> {
        self.0.woken.store(true, Ordering::Relaxed);
        PolledOnWake { wake_gate: self, future }
    }
}

impl<F: Future + Unpin> Future for PolledOnWake<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let WakeGate(flag) = self.wake_gate;
        // Registered before the flag is read: a wake-up in between wakes the task once more.
        flag.task.register(cx.waker());
        if !flag.woken.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        let waker = Waker::from(flag.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn it_is_polled_at_first_and_after_a_wake() {
        let (wake_gate, polls, waker) = (WakeGate::default(), Cell::new(0), RefCell::new(None::<Waker>));
        let mut polled_on_wake = wake_gate.poll_on_wake(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            *waker.borrow_mut() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let mut poll = || Pin::new(&mut polled_on_wake).poll(&mut Context::from_waker(Waker::noop())).is_pending();
        assert!(poll() && poll() && poll());
        assert_eq!(polls.get(), 1);
        waker.take().unwrap().wake();
        assert!(poll() && poll());
        assert_eq!(polls.get(), 2);
    }

    #[tokio::test]
    async fn a_wake_of_the_future_wakes_the_task() {
        let wake_gate = WakeGate::default();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { sender.send(7) });
        let polled_on_wake = wake_gate.poll_on_wake(receiver);
        assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(60), polled_on_wake).await.unwrap(), Ok(7));
    }
}
