//! `softdict export`: a checkpoint for other programs.

use crate::args::{Export, ExportFormat, Stored};
use crate::output::{bytes, notice};
use crate::written::check_place;
use crate::{checkpoint, usage};
use anyhow::{Context, bail};
use candle_core::{DType, Device, Tensor};
use softdict_checkpoint::{Checkpoint, Contents, Family, WeightType, save_as};
use std::path::Path;

pub(crate) fn run(args: &Export) -> anyhow::Result<()> {
    let out = &args.out;
    let (folder, _, checkpoint) = checkpoint::load(&args.checkpoint, args.which.into())?;
    let by_name = if out.extension().is_some_and(|extension| extension == "npz") {
        ExportFormat::Npz
    } else {
        ExportFormat::Hf
    };
    match args.format.unwrap_or(by_name) {
        ExportFormat::Hf => as_folder(out, &checkpoint, args.dtype)?,
        ExportFormat::Npz => as_arrays(out, &checkpoint, args.dtype)?,
    }
    notice(format!("{}: {} as {}", out.display(), folder.display(), stored(args.dtype)));
    Ok(())
}

fn stored(dtype: Stored) -> &'static str {
    match dtype {
        Stored::F32 => "f32",
        Stored::F16 => "f16",
        Stored::Bf16 => "bf16",
    }
}

/// A new folder, as the checkpoint is one, without what only a run needs.
fn as_folder(out: &Path, checkpoint: &Checkpoint, dtype: Stored) -> anyhow::Result<()> {
    refuse_taken(out)?;
    let mut progress = checkpoint.manifest.as_ref().map(|manifest| manifest.progress).unwrap_or_default();
    if dtype != Stored::F32 {
        // measured with the weights as they were
        progress.val_loss = None;
    }
    let contents = Contents {
        config: &checkpoint.config,
        parameters: &checkpoint.parameters,
        tokenizer: checkpoint.tokenizer.as_deref(),
        progress,
        trainer: None,
    };
    let dtype = match dtype {
        Stored::F32 => WeightType::F32,
        Stored::F16 => WeightType::F16,
        Stored::Bf16 => WeightType::Bf16,
    };
    save_as(out, &contents, dtype)?;
    notice(Family::note(&checkpoint.config));
    Ok(())
}

/// # Errors
/// When the folder of an export or import has something in it already.
pub(super) fn refuse_taken(out: &Path) -> anyhow::Result<()> {
    let taken = match std::fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => out.symlink_metadata().is_ok(),
    };
    if taken {
        bail!("--out {}: something is there already; give the name of a new folder", out.display());
    }
    Ok(())
}

/// One array for each tensor, under softdict's own names.
fn as_arrays(out: &Path, checkpoint: &Checkpoint, dtype: Stored) -> anyhow::Result<()> {
    let dtype = match dtype {
        Stored::F32 => DType::F32,
        Stored::F16 => DType::F16,
        Stored::Bf16 => return Err(usage("--dtype bf16: NumPy has no such type; take f32 or f16")),
    };
    let place = || format!("--out {}", out.display());
    check_place(out, &[]).with_context(place)?;
    let parameters = &checkpoint.parameters;
    let mut arrays = Vec::new();
    for parameter in parameters.table().iter() {
        let values = parameters.get(&parameter.name)?;
        let array = Tensor::from_slice(values, parameter.shape.as_slice(), &Device::Cpu)?.to_dtype(dtype)?;
        let largest = array.to_dtype(DType::F32)?.abs()?.max_all()?.to_scalar::<f32>()?;
        if !largest.is_finite() {
            bail!(
                "{}: the tensor {} is beyond the range of f16; store it as f32",
                out.display(),
                parameter.name
            );
        }
        arrays.push((parameter.name.clone(), array));
    }
    let mut write = |new: &Path| -> anyhow::Result<()> { Ok(Tensor::write_npz(&arrays, new)?) };
    softdict_files::replace(out, &mut write).with_context(place)?;
    let size = std::fs::metadata(out).map_or(0, |data| data.len());
    notice(format!("{} arrays, {}", arrays.len(), bytes(size)));
    Ok(())
}
