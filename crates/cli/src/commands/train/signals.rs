//! Signals of a training run.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Signals this close together are one: `timeout` and shells send theirs to the process and to its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// SIGINT, SIGTERM and SIGHUP: the first asks the run to save and end, a later one ends it at once.
pub(super) struct Signals {
    asked: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicUsize::new(0));
        let impatient = Arc::new(AtomicBool::new(false));
        for signal in heard() {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&impatient))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
        }
        let first = Arc::clone(&asked);
        std::thread::spawn(move || {
            while !first.load(Ordering::Relaxed) {
                std::thread::sleep(TOGETHER / 4);
            }
            std::thread::sleep(TOGETHER);
            impatient.store(true, Ordering::Relaxed);
        });
        Ok(Self { asked, number })
    }

    pub(super) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// 128 and the signal's number, or success.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self.number.load(Ordering::Relaxed) {
            0 => ExitCode::SUCCESS,
            number => ExitCode::from(128 + number as u8),
        }
    }
}

/// The signals that end a run: SIGHUP, which a closing terminal sends, unless it is ignored, as it is under `nohup`. Only
/// Linux tells without unsafe code whether it is; elsewhere a closing terminal ends the run as if there were no handler.
fn heard() -> Vec<i32> {
    let mut signals = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    #[cfg(unix)]
    if let Ok(status) = std::fs::read_to_string("/proc/self/status")
        && ignored(&status, signal_hook::consts::SIGHUP) == Some(false)
    {
        signals.push(signal_hook::consts::SIGHUP);
    }
    signals
}

/// Whether a process with this status ignores a signal (proc(5): `SigIgn` is a mask in hexadecimal).
#[cfg(unix)]
fn ignored(status: &str, signal: i32) -> Option<bool> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? >> (signal - 1) & 1 == 1)
}
