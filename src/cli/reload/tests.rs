use std::sync::Mutex;

use super::*;

/// Number 7 cannot be loaded.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<(u64, Vec<u64>)>>);

impl Numbers {
    fn change(&self, file: u64) {
        self.0.lock().unwrap().0 = file;
    }

    fn loaded(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Part for Numbers {
    fn made_from(&self) -> Fingerprint {
        Fingerprint::of(self.0.lock().unwrap().1.last().copied().unwrap_or(0))
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.0.lock().unwrap().0)
    }

    fn load(&mut self) -> Result<(), String> {
        let mut numbers = self.0.lock().unwrap();
        let file = numbers.0;
        if file == 7 {
            return Err("it is 7".into());
        }
        numbers.1.push(file);
        Ok(())
    }
}

#[test]
fn what_changed_is_loaded_when_two_looks_agree_and_everything_when_asked() {
    let (one, other) = (Numbers::default(), Numbers::default());
    let mut reload = Reload::new(vec![Box::new(one.clone()), Box::new(other.clone())]);
    let status = reload.status();
    let mut look = |asked| {
        reload.look(asked);
        let Status { loaded, refused, last_error, .. } = Status::clone(&status.load());
        (loaded, refused, last_error)
    };
    let wrong = Some("it is 7".to_owned());
    assert_eq!(look(false), (0, 0, None));
    one.change(1);
    assert_eq!(look(false), (0, 0, None), "it may be half written");
    one.change(2);
    assert_eq!(look(false), (0, 0, None));
    assert_eq!(look(false), (1, 0, None));
    assert_eq!((one.loaded(), other.loaded()), (vec![2], vec![]));
    one.change(7);
    assert_eq!(look(true), (1, 1, wrong.clone()));
    assert_eq!(other.loaded(), [0]);
    for _ in 0..3 {
        assert_eq!(look(false), (1, 1, wrong.clone()), "a mistake is reported once");
    }
    other.change(3);
    look(false);
    assert_eq!(look(false), (2, 1, wrong), "another part does not hide it");
    one.change(2);
    look(false);
    assert_eq!(look(false), (3, 1, None));
    assert_eq!((one.loaded(), other.loaded()), (vec![2, 2], vec![0, 3]));
}
