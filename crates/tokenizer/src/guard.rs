//! Calls into the `tokenizers` crate: it panics on some files, and no panic may reach the user.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::error::{Error, Result};

thread_local! {
    /// Whether this thread is inside [`guarded`], where a panic becomes an error and is not reported.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static QUIET: Once = Once::new();

/// Runs `call`; a panic in it becomes an error that names the tokenizer.
pub(crate) fn guarded<T>(name: &str, call: impl FnOnce() -> T) -> Result<T> {
    QUIET.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            // a thread that ends has no such variable any more, and is in no guarded call either
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                report(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    // what a panic leaves half done is the crate's own cache, which holds whole entries only
    let outcome = catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    outcome.map_err(|panic| Error::TokenizerPanics { name: name.to_owned(), reason: message(&*panic) })
}

/// What a panic says, if it says it in words.
fn message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref().map(String::as_str));
    words.unwrap_or("it fails without a reason").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_the_name_and_the_reason() {
        assert_eq!(guarded("t.json", || 7).unwrap(), 7);
        let number = 5;
        let errors = [
            guarded("t.json", || panic!("in words")).map(|(): ()| ()),
            guarded("t.json", || panic!("number {number}")).map(|(): ()| ()),
            guarded("t.json", || std::panic::panic_any(1)).map(|(): ()| ()),
        ];
        let texts = errors.map(|error| error.unwrap_err().to_string());
        for (text, reason) in texts.iter().zip(["in words", "number 5", "it fails without a reason"]) {
            assert_eq!(*text, format!("t.json: the tokenizer cannot be applied: {reason}"));
        }
    }

    #[test]
    fn a_panic_is_reported_only_outside_of_guarded_calls() {
        guarded("t.json", || assert!(GUARDED.get() && guarded("t.json", || ()).is_ok() && GUARDED.get()))
            .unwrap();
        guarded("t.json", || panic!("quiet")).map(|(): ()| ()).unwrap_err();
        assert!(!GUARDED.get());
    }
}
