//! Programs against the functions that they are of. Flows in: functions of every kind; flows out: equal bits.

use super::{Place, alone};
use monoglot::Input;
use monoglot::prelude::*;
use monoglot::scan;
use std::path::Path;

fn bits(t: &Tensor) -> Vec<u8> {
    t.to_bytes().expect("it has a value")
}

/// The program, and the one that is loaded after it was saved.
fn both(program: Program, name: &str) -> Result<(Program, Program, Place)> {
    let place = Place::new(name);
    program.save(place.path())?;
    let loaded = Program::load(place.path())?;
    assert_eq!(format!("{program:?}"), format!("{loaded:?}"));
    Ok((program, loaded, place))
}

struct Net {
    first: Linear,
    norm: LayerNorm,
    second: Linear,
}
module!(Net {
    first,
    norm,
    second
});

impl Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        let h = self.norm.forward(&self.first.forward(x).gelu());
        self.second.forward(&h).softmax(-1)
    }
}

fn net() -> Net {
    Net {
        first: Linear::new(8, 32),
        norm: LayerNorm::new(32),
        second: Linear::new(32, 5),
    }
}

#[test]
fn a_network_answers_to_the_bit_the_same() -> Result<()> {
    let _alone = alone();
    let net = net();
    let step = jit(|x: Tensor| net.forward(&x))?;
    let x = Tensor::randn([6, 8]);
    let wanted = step.call(&x)?;
    let program = step.program(Tensor::zeros([6, 8]))?;
    let nameless = net.named().into_iter().map(|(_, t)| ("", t));
    let e = program.named(nameless).expect_err("no name").to_string();
    assert!(e.contains("saved/programs.rs"), "{e}");
    let program = step.program(Tensor::zeros([6, 8]))?;
    let program = program.named(net.named())?.with_inputs(["x"])?;
    let (program, loaded, _place) = both(program, "network")?;
    let mut names: Vec<String> = loaded.tensors().map(|(n, ..)| n.to_string()).collect();
    names.sort();
    let mut known: Vec<String> = net.named().into_iter().map(|(n, _)| n).collect();
    known.sort();
    assert_eq!(names, known);
    for p in [&program, &loaded] {
        assert_eq!(p.inputs()[0].to_string(), "x: f32(6, 8) on CPU");
        assert_eq!(p.outputs()[0].to_string(), "output0: f32(6, 5) on CPU");
        let y = p.call(&x)?;
        assert_eq!(bits(&y[0]), bits(&wanted));
        assert_eq!(p.kernels(), program.kernels());
    }
    Ok(())
}

#[test]
fn states_go_on_from_where_they_were_saved() -> Result<()> {
    let count = Tensor::zeros([1]);
    let cache = Tensor::zeros([4, 3]);
    let place = Variable::new(0..=3)?;
    let step = jit(|row: Tensor, at: monoglot::Size| {
        cache.narrow(0, &at, 1).assign(&row);
        count.assign(&count + 1.0);
        (cache.sum(0, false), count.clone())
    })?;
    let zero = place.bind(0)?;
    let program = step.program((&Tensor::zeros([1, 3]), &zero))?;
    let program = program.named([("cache", &cache), ("count", &count)])?;
    let row = |k: usize| Tensor::full([1, 3], k as f32 + 0.5);
    for k in 0..2 {
        program.call((&row(k), k))?;
    }
    let (program, loaded, folder) = both(program, "states")?;
    let states: Vec<bool> = loaded.tensors().map(|(_, _, written)| written).collect();
    assert_eq!(states, [true, true]);
    let mut before = None;
    for k in 2..4 {
        let one = program.call((&row(k), k))?;
        let other = loaded.call((&row(k), k))?;
        assert_eq!(bits(&one[0]), bits(&other[0]));
        assert_eq!(other[1].item::<f32>()?, k as f32 + 1.0);
        // What was given once stays.
        if let Some(before) = before.replace(other[1].clone()) {
            assert_eq!(before.item::<f32>()?, k as f32);
        }
    }
    // The function itself has gone on by nothing.
    assert_eq!(count.item::<f32>()?, 0.0);
    loaded.save(folder.path())?;
    let again = Program::load(folder.path())?;
    let (_, cache, _) = again.tensors().find(|(n, ..)| *n == "cache").unwrap();
    let column = [0.5, 0.5, 0.5, 1.5, 1.5, 1.5, 2.5, 2.5, 2.5, 3.5, 3.5, 3.5];
    assert_eq!(cache.to_vec::<f32>()?, column);
    Ok(())
}

#[test]
fn training_steps_are_programs_too() -> Result<()> {
    let _alone = alone();
    Tensor::manual_seed(3);
    let net = Linear::new(4, 2);
    let dropout = Dropout::new(0.25);
    let adam = Adam::new(&net, 1e-2);
    let step = jit(|x: Tensor, y: Tensor| -> Result<Tensor> {
        let loss = (net.forward(&dropout.forward(&x)) - y)
            .square()
            .mean(.., false);
        adam.step(&loss)?;
        Ok(loss)
    })?;
    let x = Tensor::randn([16, 4]);
    let y = Tensor::ones([16, 2]);
    Tensor::realize_all(&[&x, &y])?;
    step.call((&x, &y))?;
    let program = step.program((&x, &y))?.named(net.named())?;
    let (program, loaded, _place) = both(program, "training")?;
    for _ in 0..4 {
        let wanted = bits(&step.call((&x, &y))?);
        assert_eq!(bits(&program.call((&x, &y))?[0]), wanted);
        assert_eq!(bits(&loaded.call((&x, &y))?[0]), wanted);
    }
    Ok(())
}

#[test]
fn lengths_vary_in_what_is_loaded() -> Result<()> {
    let n = Variable::new(1..=16)?;
    let weight = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([3, 4]);
    let step = jit(|x: Tensor| (x.matmul(&weight), x.sum(.., false)))?;
    let whole = Tensor::arange(0, 48, 1).cast(DType::F32).reshape([16, 3]);
    whole.realize()?;
    let program = step.program(whole.narrow(0, 0, n.bind(5)?))?;
    let (program, loaded, _place) = both(program, "lengths")?;
    assert_eq!(loaded.inputs()[0].bounds(), [(1, 16), (3, 3)]);
    for rows in [1, 16, 7] {
        let part = whole.narrow(0, 0, n.bind(rows)?);
        // A tensor of fixed sizes is one of such a length.
        let data = part.to_vec::<f32>()?;
        let fixed = Tensor::new(&data, [rows, 3]);
        for p in [&program, &loaded] {
            for x in [&part, &fixed] {
                let y = p.call(x)?;
                let wanted = fixed.matmul(&weight);
                assert_eq!(y[0].shape()?, [rows as usize, 4]);
                assert_eq!(y[0].to_vec::<f32>()?, wanted.to_vec::<f32>()?);
                assert_eq!(y[1].item::<f32>()?, data.iter().sum::<f32>());
            }
        }
    }
    let error = loaded.call(Tensor::zeros([17, 3])).unwrap_err();
    assert!(error.to_string().contains("1..=16"), "{error}");
    Ok(())
}

#[test]
fn what_does_not_fit_says_what_would() -> Result<()> {
    let step = jit(|x: Tensor, rate: Tensor| x * rate)?;
    let program = step.program((&Tensor::zeros([2, 2]), 0.5f32))?;
    let program = program.with_inputs(["x", "rate"])?;
    let x = Tensor::ones([2, 2]);
    assert_eq!(program.call((&x, 3.0))?[0].to_vec::<f32>()?, [3.0; 4]);
    assert_eq!(
        program.call(vec![Input::from(&x), 2.into()])?[0].to_vec::<f32>()?,
        [2.0; 4]
    );
    let told = |e: Error| e.to_string();
    let missing = told(program.call(&x).unwrap_err());
    assert!(missing.contains("rate: f32() on CPU"), "{missing}");
    let shape = told(program.call((&Tensor::ones([2, 3]), 1.0)).unwrap_err());
    assert!(
        shape.contains("x: f32(2, 2)") && shape.contains("[2, 3]"),
        "{shape}"
    );
    let dtype = told(program.call((&x.cast(DType::I32), 1.0)).unwrap_err());
    assert!(dtype.contains("cast"), "{dtype}");
    let names = step
        .program((&x, 0.5f32))?
        .with_inputs(["x", "x"])
        .unwrap_err();
    assert!(told(names).contains("two of the inputs"));
    Ok(())
}

#[test]
fn what_is_given_may_be_what_is_passed_or_reached() -> Result<()> {
    let weight = Tensor::arange(0, 4, 1).cast(DType::F32);
    let step = jit(|x: Tensor| {
        let rows = x.reshape([2, 2]);
        (
            x,
            weight.clone(),
            rows.narrow(0, 1, 1),
            Tensor::ones([3]),
            rows,
        )
    })?;
    let program = step.program(&weight)?;
    let (program, loaded, _place) = both(program, "given")?;
    let x = Tensor::arange(4, 8, 1).cast(DType::F32);
    for p in [program, loaded] {
        let y = p.call(&x)?;
        assert_eq!(y[0].to_vec::<f32>()?, [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(y[1].to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(y[2].to_vec::<f32>()?, [6.0, 7.0]);
        assert_eq!(y[3].to_vec::<f32>()?, [1.0; 3]);
        assert_eq!(y[4].shape()?, [2, 2]);
    }
    Ok(())
}

#[test]
fn tables_that_the_function_makes_are_kept() -> Result<()> {
    let step = jit(|x: Tensor| {
        let table = Tensor::new(&[10.0f32, 20.0, 30.0], [3]);
        table.gather(0, &x)
    })?;
    let program = step.program(Tensor::new(&[0i32, 1], [2]))?;
    let (_, loaded, _place) = both(program, "tables")?;
    let y = loaded.call(Tensor::new(&[2i32, 1], [2]))?;
    assert_eq!(y[0].to_vec::<f32>()?, [30.0, 20.0]);
    Ok(())
}

#[test]
fn what_is_asserted_is_asserted_still() -> Result<()> {
    let _alone = alone();
    let table = Embedding::new(5, 2);
    let step = jit(|x: Tensor| table.forward(&x))?;
    let program = step.program(Tensor::new(&[0i32, 1, 2], [3]))?;
    let (program, loaded, _place) = both(program, "asserted")?;
    let good = Tensor::new(&[4i32, 0, 2], [3]);
    assert_eq!(
        bits(&loaded.call(&good)?[0]),
        bits(&program.call(&good)?[0])
    );
    let wrong = Tensor::new(&[4i32, 9, 2], [3]);
    let error = loaded.call(&wrong).unwrap_err();
    let told = |e: &ErrorKind| matches!(e, ErrorKind::OutOfRange { value: Some(9), position, .. } if position == &[1]);
    assert!(told(error.kind()), "{error}");
    Ok(())
}

#[test]
fn what_is_passed_is_written_where_the_function_writes_it() -> Result<()> {
    let step = jit(|cache: Tensor, x: Tensor| {
        cache.assign(&cache + &x);
        x.sum(.., false)
    })?;
    let program = step.program((&Tensor::zeros([2]), &Tensor::zeros([2])))?;
    let (_, loaded, _place) = both(program, "passed")?;
    let cache = Tensor::ones([2]);
    cache.realize()?;
    for _ in 0..2 {
        loaded.call((&cache, &Tensor::full([2], 3.0f32)))?;
    }
    assert_eq!(cache.to_vec::<f32>()?, [7.0, 7.0]);
    let error = loaded.call((&cache, &cache)).unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
    Ok(())
}

#[test]
fn a_program_without_kernels_and_one_without_inputs_are_programs() -> Result<()> {
    let step = jit(|x: Tensor| x)?;
    let (_, loaded, _place) = both(step.program(Tensor::zeros([2]))?, "nothing")?;
    assert_eq!(
        loaded.call(Tensor::ones([2]))?[0].to_vec::<f32>()?,
        [1.0; 2]
    );
    let step = jit(|| Tensor::arange(0, 3, 1).cast(DType::F32))?;
    let (_, loaded, _place) = both(step.program(())?, "no-inputs")?;
    assert_eq!(loaded.call(())?[0].to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    Ok(())
}

#[test]
fn threads_that_call_one_program_each_count() -> Result<()> {
    let count = Tensor::zeros([1]);
    let step = jit(|x: Tensor| {
        count.assign(&count + 1.0);
        (x * 2.0, count.clone())
    })?;
    let (_, loaded, _place) = both(step.program(Tensor::zeros([3]))?, "threads")?;
    let mut seen = std::thread::scope(|scope| {
        let call = |k: usize| {
            let mut seen = Vec::new();
            for _ in 0..20 {
                let y = loaded.call(Tensor::full([3], k as f32)).expect("it runs");
                assert_eq!(y[0].to_vec::<f32>().unwrap(), [2.0 * k as f32; 3]);
                seen.push(y[1].item::<f32>().unwrap() as i64);
            }
            seen
        };
        let threads: Vec<_> = (0..3).map(|k| scope.spawn(move || call(k))).collect();
        let all = threads.into_iter().flat_map(|t| t.join().unwrap());
        all.collect::<Vec<i64>>()
    });
    seen.sort();
    assert_eq!(seen, (1..=60).collect::<Vec<i64>>());
    Ok(())
}

#[test]
fn narrow_floats_bools_and_two_devices_are_kept() -> Result<()> {
    let half = Tensor::arange(0, 6, 1).cast(DType::BF16) / 4.0;
    let mask = Tensor::new(&[true, false, true], [3]);
    let there = Tensor::new(&[1.0f32, 2.0, 3.0], [3]).to(Device::new("INTERP"));
    Tensor::realize_all(&[&half, &mask, &there])?;
    let step = jit(|x: Tensor| {
        let y = half.reshape([2, 3]).cast(DType::F32) * &x;
        let y = mask.select(&y, 0.0f32);
        (
            there.to(Device::new("CPU")) + &y,
            (y.to(Device::new("INTERP")) + &there).sum(0, false),
        )
    })?;
    let (program, loaded, _place) = both(step.program(Tensor::zeros([3]))?, "devices")?;
    assert_eq!(loaded.outputs()[1].device(), Some(Device::new("INTERP")));
    let x = Tensor::new(&[1.0f32, -2.0, 0.5], [3]);
    let one = program.call(&x)?;
    let other = loaded.call(&x)?;
    for (a, b) in one.iter().zip(&other) {
        assert_eq!(bits(a), bits(b));
    }
    assert_eq!(
        other[0].to_vec::<f32>()?,
        [1.0, 2.0, 3.25, 1.75, 2.0, 3.625]
    );
    Ok(())
}

#[test]
fn a_program_that_writes_a_constant_begins_where_that_is() -> Result<()> {
    // What the function has made of its state before the program was had is what it begins with.
    let state = Tensor::ones([2]);
    let step = jit(|x: Tensor| {
        state.assign(&state * x);
        state.sum(.., false)
    })?;
    step.call(3.0f32)?;
    let (program, loaded, place) = both(step.program(1.0f32)?, "begins")?;
    step.call(5.0f32)?;
    for p in [&program, &loaded] {
        assert_eq!(p.call(2.0f32)?[0].item::<f32>()?, 12.0);
    }
    // A state can be set by hand, and is saved so.
    let (_, tensor, written) = loaded.tensors().next().unwrap();
    assert!(written);
    tensor.assign(Tensor::full([2], 10.0f32));
    loaded.save(place.path())?;
    let again = Program::load(place.path())?;
    assert_eq!(again.call(1.0f32)?[0].item::<f32>()?, 20.0);
    Ok(())
}

#[test]
fn weights_in_files_are_saved_with_the_program() -> Result<()> {
    let file = Place::new("file");
    let numbers: Vec<u8> = (0..6u8).flat_map(|k| f32::from(k).to_le_bytes()).collect();
    std::fs::write(file.path(), &numbers).expect("a file of ours");
    let weight = Tensor::open(file.path(), DType::F32);
    let step = jit(|x: Tensor| weight.to(Device::new("CPU")).reshape([3, 2]).matmul(&x))?;
    let program = step.program(Tensor::zeros([2, 2]))?;
    let program = program.named([("weight", &weight)])?;
    let (_, loaded, _place) = both(program, "in-files")?;
    std::fs::remove_file(file.path()).expect("it is there");
    let y = loaded.call(Tensor::ones([2, 2]))?;
    assert_eq!(y[0].to_vec::<f32>()?, [1.0, 1.0, 5.0, 5.0, 9.0, 9.0]);
    Ok(())
}

#[test]
fn loops_within_loops_are_saved_with_what_they_check() -> Result<()> {
    let _alone = alone();
    let table = Tensor::randn([5, 4]);
    let w = Tensor::randn([4, 4]);
    Tensor::realize_all(&[&table, &w])?;
    let step = jit(|ids: Tensor| -> Result<(Tensor, Tensor)> {
        let row = |h: Tensor, ids: Tensor| -> Result<(Tensor, Tensor)> {
            let step = |h: Tensor, id: Tensor| {
                let h = (h.matmul(&w) + table.embedding(&id)).tanh();
                (h.clone(), h)
            };
            scan(step, h, ids)
        };
        scan(row, Tensor::zeros([4]), ids)
    })?;
    let numbers: Vec<i32> = (0..6 * 7).map(|k| k * 3 % 5).collect();
    let ids = Tensor::new(&numbers, [6, 7]);
    let (last, all) = step.call(&ids)?;
    let program = step.program(Tensor::zeros([6, 7]).cast(DType::I32))?;
    let program = program.with_inputs(["ids"])?;
    let (_, loaded, _place) = both(program, "loops")?;
    let out = loaded.call(&ids)?;
    assert_eq!(bits(&out[0]), bits(&last));
    assert_eq!(bits(&out[1]), bits(&all));
    let wrong: Vec<i32> = numbers.iter().map(|n| n + n / 4).collect();
    let wrong = Tensor::new(&wrong, [6, 7]);
    let e = step.call(&wrong).map(|_| ());
    let e = e.expect_err("there is no row 5").to_string();
    assert!(e.contains('5'), "{e}");
    let e = loaded.call(&wrong).map(|_| ());
    let e = e.expect_err("there is no row 5").to_string();
    assert!(e.contains('5'), "{e}");
    Ok(())
}

/// Copies to another device are as long as what is given; what a function stores by itself has no length but its own.
#[test]
fn copies_of_lengths_that_vary_are_saved() -> Result<()> {
    let place = Place::new("copies");
    let other = Device::new("INTERP");
    let twice = jit(move |x: Tensor| {
        let own = (&x * 2.0).contiguous();
        ((x.to(other) * 2.0).contiguous() + own.to(other)) * 1.0
    })?;
    let program = twice.program(Tensor::ones([5]).dynamic(0, 1..=40))?;
    program.save(place.path())?;
    let loaded = monoglot::Program::load(place.path())?;
    for n in [18u16, 4, 40, 1] {
        let x: Vec<f32> = (0..n).map(f32::from).collect();
        let want: Vec<f32> = x.iter().map(|v| v * 4.0).collect();
        let x = Tensor::new(&x, [i64::from(n)]);
        for program in [&program, &loaded] {
            assert_eq!(program.call(&x)?[0].to_vec::<f32>()?, want, "{n}");
        }
    }
    let stores = jit(|x: Tensor| x.parameter() * 2.0)?;
    let program = stores.program(Tensor::ones([5]).dynamic(0, 1..=40))?;
    let e = program.save(place.path()).expect_err("it varies");
    assert!(e.to_string().contains("its length varies"), "{e}");
    Ok(())
}

/// A program's kernels are for what its tensors were: one that becomes something else is told, and never read as what it
/// was.
#[test]
fn what_a_program_has_stays_what_it_is() -> Result<()> {
    let _alone = alone();
    let cache = Tensor::zeros([1]).contiguous();
    cache.realize()?;
    let grows = jit(|x: Tensor| -> Result<Tensor> {
        cache.rebind(&Tensor::cat(&[&cache, &x], 0));
        Ok(&cache * 1.0)
    })?;
    let e = grows.program(Tensor::zeros([1])).map(|_| ());
    let e = e.expect_err("a state that grows").to_string();
    assert!(e.contains("(2,)") && e.contains("(1,)"), "{e}");
    assert_eq!(grows.call(Tensor::ones([1]))?.to_vec::<f32>()?, [0.0, 1.0]);

    let w = Tensor::arange(0, 6, 1).cast(DType::F32).reshape([2, 3]);
    let w = w.contiguous();
    w.realize()?;
    let times = jit(|x: Tensor| x.matmul(&w))?;
    let program = times.program(Tensor::zeros([1, 2]))?;
    let x = Tensor::new(&[1f32, 10.0], [1, 2]);
    let own = program.tensors().next().expect("a weight").1.clone();
    for other in [
        Tensor::new(&[1i32, 2, 3, 4, 5, 6], [2, 3]),
        Tensor::ones([3, 2]),
        Tensor::ones([2]),
    ] {
        own.rebind(&other);
        let e = program.call(&x).map(|_| ()).expect_err("another look");
        assert!(e.to_string().contains("was f32 of shape (2, 3)"), "{e}");
    }
    own.rebind(&Tensor::new(&[1f32, 2., 3., 4., 5., 6.], [2, 3]));
    assert_eq!(program.call(&x)?[0].to_vec::<f32>()?, [41.0, 52.0, 63.0]);

    let e = program.with_outputs(["__metadata__"]).map(|_| ());
    let e = e.expect_err("no tensor's name").to_string();
    assert!(e.contains("__metadata__"), "{e}");
    Ok(())
}

/// The folder that a program is saved in is another one afterwards.
#[test]
fn the_folder_that_a_process_works_in_is_not_replaced() -> Result<()> {
    let program = jit(|x: Tensor| x * 2.0)?.program(Tensor::ones([1]))?;
    for folder in [
        Path::new("."),
        &std::env::current_dir().expect("there is one"),
    ] {
        let e = program.save(folder).expect_err("it would be gone");
        assert!(e.to_string().contains("works in"), "{e}");
    }
    Ok(())
}
