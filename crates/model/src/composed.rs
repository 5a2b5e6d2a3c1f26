//! Losses and gradients by candle's autograd over the composed operations: works on any device.

use crate::block::DropoutPass;
use crate::config::ModelConfig;
use crate::engine::{Batch, Engine};
use crate::error::{ModelError, Result};
use crate::parameters::{Parameter, Parameters};
use crate::transformer::Transformer;
use candle_core::{Device, Tensor, Var};
use softdict_kernels::Ops;
use softdict_kernels::cross_entropy::IGNORE;
use std::sync::Arc;

/// The model as candle variables on a device; the flat buffers stay on the host.
pub struct ComposedEngine {
    config: ModelConfig,
    device: Device,
    ops: Ops,
    loaded: Option<Loaded>,
}

/// The variables of one version of the parameters.
struct Loaded {
    version: u64,
    model: Transformer,
    variables: Vec<Var>,
}

impl ComposedEngine {
    /// An engine for `config` on `device`.
    pub fn new(config: &ModelConfig, device: &Device) -> Self {
        Self::with_ops(config, device, Ops::Reference)
    }

    /// As [`ComposedEngine::new`], computing by `ops`.
    pub fn with_ops(config: &ModelConfig, device: &Device, ops: Ops) -> Self {
        Self { config: config.clone(), device: device.clone(), ops, loaded: None }
    }

    /// The model with the newest parameters.
    fn load(&mut self, parameters: &Parameters) -> Result<&Loaded> {
        let version = parameters.version();
        let loaded = match self.loaded.take() {
            Some(loaded) if loaded.version == version => loaded,
            _ => {
                let variables = parameters
                    .table()
                    .iter()
                    .map(|parameter| {
                        let values = &parameters.values()[parameter.range()];
                        let tensor = Tensor::from_slice(values, parameter.shape.as_slice(), &self.device)?;
                        Ok(Var::from_tensor(&tensor)?)
                    })
                    .collect::<Result<Vec<Var>>>()?;
                let find = |parameter: &Parameter| {
                    let index = parameters.table().iter().position(|own| own.name == parameter.name);
                    let variable = index.and_then(|index| variables.get(index));
                    let missing = || ModelError::MissingParameter { name: parameter.name.clone() };
                    Ok(variable.ok_or_else(missing)?.as_tensor().clone())
                };
                let model = Transformer::from_tensors(&self.config, self.ops, &self.device, &find)?;
                Loaded { version, model, variables }
            }
        };
        Ok(self.loaded.insert(loaded))
    }
}

/// Mean loss of a batch and how many targets it is the mean of.
fn mean_loss(
    model: &Transformer,
    ops: Ops,
    batch: Batch<'_>,
    dropout: Option<DropoutPass>,
) -> Result<(Tensor, f64)> {
    batch.check(model.config())?;
    let logits = model.train(batch.inputs, batch.time, dropout)?; // (B, T, V)
    let rows = logits.reshape(((), model.config().vocab_size))?; // (B·T, V)
    let targets: Arc<[u32]> = batch.targets.into();
    let counted = targets.iter().filter(|&&target| target != IGNORE).count();
    Ok((ops.cross_entropy(&rows, &targets)?, counted as f64))
}

impl Engine for ComposedEngine {
    fn accumulate(
        &mut self,
        parameters: &Parameters,
        batch: Batch<'_>,
        scale: f32,
        dropout: Option<DropoutPass>,
        gradient: &mut [f32],
    ) -> Result<f64> {
        let ops = self.ops;
        let loaded = self.load(parameters)?;
        let (loss, counted) = mean_loss(&loaded.model, ops, batch, dropout)?;
        let store = loss.backward()?;
        let factor = f64::from(scale) * counted;
        for (parameter, variable) in parameters.table().iter().zip(&loaded.variables) {
            // candle leaves out tensors that nothing depends on, and forgets detached ones without a word
            let own =
                store.get(variable).ok_or_else(|| ModelError::NoGradient { name: parameter.name.clone() })?;
            let own: Vec<f32> = (own * factor)?.flatten_all()?.to_vec1()?;
            for (total, own) in gradient[parameter.range()].iter_mut().zip(own) {
                *total += own;
            }
        }
        Ok(f64::from(loss.to_scalar::<f32>()?) * counted)
    }

    fn loss(&mut self, parameters: &Parameters, batch: Batch<'_>) -> Result<f64> {
        let ops = self.ops;
        let (loss, counted) = mean_loss(&self.load(parameters)?.model, ops, batch, None)?;
        Ok(f64::from(loss.to_scalar::<f32>()?) * counted)
    }
}
