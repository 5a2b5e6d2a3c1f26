//! Where to compute: device, threads, memory.

use crate::args::Machine;
use crate::output::notice;
use crate::usage;
use anyhow::Context;
use candle_core::Device;
use std::num::NonZeroUsize;

/// More threads than any machine this is for has cores.
const MOST_THREADS: usize = 1024;

/// Sets the threads up and returns the device that was asked for, or the better one there is.
pub(crate) fn prepare(machine: &Machine) -> anyhow::Result<Device> {
    threads(machine.threads)?;
    device(&machine.device)
}

/// Sets the number of threads; absent means one for each core.
pub(crate) fn threads(threads: Option<NonZeroUsize>) -> anyhow::Result<()> {
    let Some(threads) = threads else { return Ok(()) };
    if threads.get() > MOST_THREADS {
        return Err(usage(format!(
            "--threads {threads}: it must be at most {MOST_THREADS}; more than there are cores only slows it down"
        )));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build_global()
        .with_context(|| format!("--threads {threads}"))
}

fn device(name: &str) -> anyhow::Result<Device> {
    let number = match name {
        "cpu" => return Ok(Device::Cpu),
        "auto" if !candle_core::utils::cuda_is_available() => return Ok(Device::Cpu),
        "auto" => {
            return Ok(Device::new_cuda(0).unwrap_or_else(|error| {
                notice(format!("no GPU answers ({error}): everything is computed on the CPU"));
                Device::Cpu
            }));
        }
        "cuda" => 0,
        other => other
            .strip_prefix("cuda:")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| usage(format!("--device {other}: it must be auto, cpu, cuda or cuda:N")))?,
    };
    if !candle_core::utils::cuda_is_available() {
        anyhow::bail!(
            "--device {name}: this build has no CUDA; build it with `cargo build --release --features cuda`, or use --device cpu"
        );
    }
    Device::new_cuda(number)
        .with_context(|| format!("--device {name}: no such GPU, or its driver does not answer"))
}

/// What messages call a device.
pub(crate) fn device_name(device: &Device) -> String {
    match device.location() {
        candle_core::DeviceLocation::Cpu => {
            let threads = rayon::current_num_threads();
            format!("CPU, {threads} {}", if threads == 1 { "thread" } else { "threads" })
        }
        candle_core::DeviceLocation::Cuda { gpu_id } => format!("CUDA device {gpu_id}"),
        candle_core::DeviceLocation::Metal { gpu_id } => format!("Metal device {gpu_id}"),
    }
}

/// Bytes of memory that can still be used, where the system says.
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_name_and_others_are_refused() {
        assert!(device("cpu").unwrap().is_cpu());
        assert!(device("gpu").unwrap_err().to_string().contains("--device gpu"));
        assert!(device("cuda:x").is_err());
        if !candle_core::utils::cuda_is_available() {
            assert!(device("auto").unwrap().is_cpu());
            let message = device("cuda").unwrap_err().to_string();
            assert!(message.contains("--device cuda") && message.contains("--features cuda"), "{message}");
        }
    }
}
