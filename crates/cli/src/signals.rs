//! Signals: SIGINT, SIGTERM and SIGHUP end the program, after it put its things in order.
//!
//! A run in training saves first and ends by itself, unless a second signal comes. Everything else removes what it was
//! writing and ends.

use crate::output::notice;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Signals this close together are one: `timeout` and shells send theirs to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(300);
/// How long a run may take to end before it says that it was heard.
const SILENT: Duration = Duration::from_secs(1);
/// How often it is looked whether there was a signal.
const LOOK: Duration = Duration::from_millis(25);

/// Whether a run is in training, and which signal asked it to end (0 for none).
static TRAINING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// Whether the program is ending because of a signal.
static ENDING: AtomicBool = AtomicBool::new(false);
static LATEST: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Listens from now on.
///
/// # Errors
/// When the system refuses.
pub(crate) fn listen() -> anyhow::Result<()> {
    let latest = LATEST.get_or_init(Arc::default);
    for signal in heard() {
        signal_hook::flag::register_usize(signal, Arc::clone(latest), signal as usize)?;
    }
    // beyond a limit on the size of files, writing fails with an error that can be told, instead of ending the program
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    std::thread::spawn(|| watch(latest));
    Ok(())
}

fn watch(latest: &AtomicUsize) {
    let (mut first, mut told): (Option<Instant>, bool) = (None, false);
    loop {
        std::thread::sleep(LOOK);
        let signal = latest.swap(0, Ordering::Relaxed);
        if first.is_some_and(|first| first.elapsed() > SILENT) && !told && TRAINING.load(Ordering::Relaxed) {
            notice("stopping after this update, which is saved; a second signal ends at once and loses it");
            told = true;
        }
        match (signal, first) {
            (0, _) => {}
            (_, Some(first)) if first.elapsed() < TOGETHER => {}
            (signal, None) if TRAINING.load(Ordering::Relaxed) => {
                first = Some(Instant::now());
                ASKED.store(signal, Ordering::Relaxed);
            }
            (signal, _) => {
                ENDING.store(true, Ordering::Relaxed);
                softdict_files::discard_unfinished();
                #[expect(clippy::exit, reason = "the rest of the program waits for something else")]
                std::process::exit(128 + signal as i32)
            }
        }
    }
}

/// From now on the first signal asks a run to save and end.
pub(crate) fn training() {
    TRAINING.store(true, Ordering::Relaxed);
}

/// From now on a signal ends the program as it ends any other: nothing is left to save.
pub(crate) fn trained() {
    TRAINING.store(false, Ordering::Relaxed);
}

/// Waits for the end where a signal brought it on: what fails meanwhile fails because of that.
pub(crate) fn let_end() {
    while ENDING.load(Ordering::Relaxed) {
        std::thread::park();
    }
}

/// Whether the run was asked to end.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}

/// 128 and the signal's number, or success.
pub(crate) fn exit_code() -> ExitCode {
    match ASKED.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        number => ExitCode::from(128 + number as u8),
    }
}

/// The signals that end the program, without those that it was told to ignore, as `nohup` does with SIGHUP.
fn heard() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // only Linux tells without unsafe code what is ignored; elsewhere a closing terminal ends the program as if there were
    // no handler
    #[cfg(unix)]
    signals.extend(ignored(&status).is_some().then_some(signal_hook::consts::SIGHUP));
    let mask = ignored(&status).unwrap_or(0);
    signals.retain(|signal| mask >> (signal - 1) & 1 == 0);
    signals
}

/// The signals that a process with this status ignores, the first as the lowest bit (proc(5), `SigIgn`).
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_mask() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001003\nSigCgt:\t0\n"), Some(0x1003));
        assert_eq!(ignored("Name:\tx\n"), None);
    }
}
