//! Convolutions, over one axis and over two. Flows in: (n, channels, …); flows out: (n, channels,
//! …) of the layer's own number of channels. Always: the weights are parameters that `visit` names.

use crate::init::{Init, parameter};
use crate::module::{Module, Part, join};
use monoglot_tensor::{Conv as ConvOptions, Tensor};

macro_rules! conv {
    ($name:ident, $axes:literal, $doc:literal, $shape:literal) => {
        #[doc = $doc]
        #[derive(Debug)]
        pub struct $name {
            /// (outputs, inputs / groups, kernel…), uniform on ±1/√(inputs / groups · kernel…).
            pub weight: Tensor,
            /// (outputs,), from the same.
            pub bias: Option<Tensor>,
            /// Stride, padding, dilation and groups.
            pub options: ConvOptions,
        }

        impl $name {
            /// From `inputs` to `outputs` channels with a kernel of `size` along each axis.
            #[track_caller]
            pub fn new(inputs: usize, outputs: usize, size: usize) -> $name {
                $name::with(inputs, outputs, [size; $axes], ConvOptions::default())
            }

            /// The same, of any kernel and with options.
            #[track_caller]
            pub fn with(
                inputs: usize,
                outputs: usize,
                size: [usize; $axes],
                options: ConvOptions,
            ) -> $name {
                let depth = inputs / options.groups.max(1) as usize;
                let mut shape = vec![outputs, depth];
                shape.extend(size);
                let start = Init::fan_in(depth * size.iter().product::<usize>());
                let bias = Some(parameter(&[outputs], start));
                $name {
                    weight: parameter(&shape, start),
                    bias,
                    options,
                }
            }

            /// The same with nothing added to the channels.
            pub fn without_bias(self) -> $name {
                $name { bias: None, ..self }
            }

            #[doc = $shape]
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Tensor {
                x.conv(&self.weight, self.bias.as_ref(), &self.options)
            }
        }

        impl Module for $name {
            fn visit(&self, path: &str, see: &mut dyn FnMut(&str, Part)) {
                see(&join(path, "weight"), Part::Parameter(&self.weight));
                if let Some(b) = &self.bias {
                    see(&join(path, "bias"), Part::Parameter(b));
                }
            }
        }
    };
}

conv!(
    Conv1d,
    1,
    "A convolution over one axis.",
    "(N, inputs, L) → (N, outputs, L′)."
);
conv!(
    Conv2d,
    2,
    "A convolution over two axes.",
    "(N, inputs, H, W) → (N, outputs, H′, W′)."
);
