//! Four threads that ask one model at once.

use crate::reference::Reference;
use crate::{numbers, start};
use monoglot::prelude::*;

struct Mlp {
    layers: [Linear; 3],
}
module!(Mlp { layers });

impl Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        let h = self.layers[0].forward(x).relu();
        let h = self.layers[1].forward(&h).relu();
        self.layers[2].forward(&h).softmax(1)
    }
}

#[test]
fn four_threads_are_served_by_one_model() -> Result<()> {
    let reference = Reference::new(include_str!("serving.txt"));
    let net = Mlp {
        layers: [
            Linear::new(16, 64),
            Linear::new(64, 64),
            Linear::new(64, 10),
        ],
    };
    start(&net)?;
    let serve = |thread: u64| -> Result<()> {
        for request in 0..8 {
            let x = numbers(100 + thread * 8 + request, [4, 16]);
            let answer = net.forward(&x);
            reference.check(&format!("answer{thread}.{request}"), &answer, 1e-5)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let serve = &serve;
        let threads = [0, 1, 2, 3].map(|t| scope.spawn(move || serve(t)));
        threads
            .into_iter()
            .try_for_each(|t| t.join().expect("no thread panics"))
    })
}
