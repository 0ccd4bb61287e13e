use std::sync::Mutex;

use super::*;

/// A part whose file is a number. Number 7 cannot be loaded, and 8 is a panic.
#[derive(Clone, Default)]
struct NumberFile(Arc<Mutex<(u64, Vec<u64>)>>);

impl NumberFile {
    fn change(&self, file: u64) {
        self.0.lock().unwrap().0 = file;
    }

    fn loaded(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Reloadable for NumberFile {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::from_content(self.0.lock().unwrap().1.last().copied().unwrap_or(0))
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::from_content(self.0.lock().unwrap().0)
    }

    fn prepare(&mut self) -> Result<(), String> {
        let number = self.0.lock().unwrap().0;
        match number {
            7 => Err("it is 7".into()),
            8 => panic!("it is 8"),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, succeeded: bool) {
        let mut numbers = self.0.lock().unwrap();
        let file = numbers.0;
        numbers.1.extend(succeeded.then_some(file));
    }
}

#[test]
fn a_change_is_loaded_after_two_equal_polls_and_everything_on_request() {
    let (one, other) = (NumberFile::default(), NumberFile::default());
    let mut reload = Reload::new(vec![Box::new(one.clone()), Box::new(other.clone())]);
    let reload_status = reload.reload_status();
    let mut poll = |requested| {
        reload.poll(requested);
        let ReloadStatus { loaded, failed, last_error, .. } = ReloadStatus::clone(&reload_status.load());
        (loaded, failed, last_error)
    };
    let wrong = Some("it is 7".to_owned());
    assert_eq!(poll(false), (0, 0, None));
    one.change(1);
    assert_eq!(poll(false), (0, 0, None), "the file may be half written");
    one.change(2);
    assert_eq!(poll(false), (0, 0, None));
    assert_eq!(poll(false), (1, 0, None));
    assert_eq!((one.loaded(), other.loaded()), (vec![2], vec![]));
    one.change(7);
    assert_eq!(poll(true), (1, 1, wrong.clone()));
    assert_eq!((one.loaded(), other.loaded()), (vec![2], vec![]), "everything or nothing");
    for _ in 0..3 {
        assert_eq!(poll(false), (1, 1, wrong.clone()), "a mistake is reported once");
    }
    other.change(3);
    poll(false);
    assert_eq!(poll(false), (1, 2, wrong.clone()), "the mistake in one part prevents the reload of the other");
    assert!(other.loaded().is_empty());
    one.change(2);
    poll(false);
    assert_eq!(poll(false), (2, 2, None));
    assert_eq!((one.loaded(), other.loaded()), (vec![2, 2], vec![3]));
    assert_eq!(poll(false), (2, 2, None));
    assert_eq!(poll(true), (3, 2, None));
    one.change(8);
    let (loaded, failed, error) = poll(true);
    assert_eq!((loaded, failed), (3, 3));
    assert!(error.is_some_and(|error| error.starts_with("internal error")));
    one.change(9);
    assert_eq!(poll(true), (4, 3, None), "a panic does not end the watching");
}
