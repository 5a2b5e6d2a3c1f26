//! Settings that follow from the text, as the files in `configs/` would give them, and why.

use crate::settings::Settings;
use softdict_trainer::Objective;

/// The presets of the embedded tales; also files that can be copied and changed.
pub(crate) const TALES: &str = include_str!("../../../configs/tales.toml");
const REFERENTS: &str = include_str!("../../../configs/referents.toml");

/// A size of text and what suits it.
struct Preset {
    /// Texts below this many bytes.
    below: u64,
    settings: &'static str,
    reason: &'static str,
}

/// From the smallest text to the largest. Sizes are those of the presets in nanoGPT's README and of a laptop's
/// patience: minutes, not hours.
const PRESETS: [Preset; 3] = [
    Preset {
        below: 50_000,
        settings: "[model]\nlayers = 2\nheads = 2\nwidth = 64\ncontext = 32\ndropout = 0.1\n\
                   [train]\nsteps = 600\nbatch = 16\nwarmup_steps = 50\neval_every = 100\nlog_every = 20\n",
        reason: "a short text: a small model that is trained for some seconds, with dropout against memorising",
    },
    Preset {
        below: 20_000_000,
        settings: "[model]\nlayers = 4\nheads = 4\nwidth = 128\ncontext = 64\n\
                   [train]\nsteps = 2000\nbatch = 12\nwarmup_steps = 100\neval_every = 250\nlog_every = 50\n",
        reason: "a book or a few: four layers of width 128, about a minute or two on a laptop",
    },
    Preset {
        below: u64::MAX,
        settings: "[model]\nlayers = 6\nheads = 6\nwidth = 192\ncontext = 128\n\
                   [train]\nsteps = 5000\nbatch = 16\nwarmup_steps = 200\neval_every = 500\nlog_every = 50\n",
        reason: "a long text: six layers of width 192, some tens of minutes on a laptop",
    },
];

/// Settings for a text of `bytes` bytes, and why these.
pub(crate) fn for_text(bytes: u64) -> anyhow::Result<(Settings, &'static str)> {
    let preset = PRESETS.iter().find(|preset| bytes < preset.below).unwrap_or(&PRESETS[PRESETS.len() - 1]);
    let settings = Settings::default().with(Some(("the preset", preset.settings)), &[])?;
    Ok((settings, preset.reason))
}

/// Settings for the embedded tales: what comes next in them, or what is hidden in them.
pub(crate) fn for_tales(objective: Objective) -> anyhow::Result<Settings> {
    let file = match objective {
        Objective::Next => ("configs/tales.toml", TALES),
        Objective::Masked => ("configs/referents.toml", REFERENTS),
    };
    Settings::default().with(Some(file), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid() {
        for bytes in [0, 49_999, 50_000, 1_000_000, 1 << 40] {
            for_text(bytes).unwrap().0.check().unwrap();
        }
        for objective in [Objective::Next, Objective::Masked] {
            let settings = for_tales(objective).unwrap();
            settings.check().unwrap();
            assert_eq!(settings.train.objective, objective);
        }
    }
}
