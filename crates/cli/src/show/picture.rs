//! Storage over time as a picture. Flows in: a memory plan; flows out: SVG that needs nothing else. Always:
//! from left to right the CALLs of a program, from below its bytes; a box is a buffer, where it lies and while it
//! is in use.

use monoglot::compiler::schedule::{Allocation, Plan};
use std::fmt::Write;

/// The size of the picture, and what the axes leave of it.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 700.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 52.0;

/// Where CALLs and bytes are in the picture.
struct Scale {
    calls: f64,
    bytes: f64,
}

impl Scale {
    fn x(&self, call: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * call as f64 / self.calls
    }

    fn y(&self, bytes: usize) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / self.bytes
    }
}

/// Bytes in the unit that reads best.
pub(super) fn bytes(n: usize) -> String {
    match n {
        n if n >= 1 << 30 => format!("{:.2} GiB", n as f64 / (1u64 << 30) as f64),
        n if n >= 1 << 20 => format!("{:.1} MiB", n as f64 / (1 << 20) as f64),
        n if n >= 1 << 10 => format!("{:.1} KiB", n as f64 / (1 << 10) as f64),
        n => format!("{n} B"),
    }
}

/// The picture of a plan of one device over so many CALLs.
pub(super) fn draw(title: &str, plan: &Plan, calls: usize) -> String {
    // The memory of what lives between kernels lies below those of outputs.
    let mut order: Vec<usize> = (0..plan.memories.len()).collect();
    order.sort_by_key(|&m| plan.memories[m].output.is_some());
    let mut base = vec![0; order.len()];
    let mut top = 0;
    for &m in &order {
        base[m] = top;
        top += plan.memories[m].bytes;
    }
    let scale = Scale {
        calls: calls.max(1) as f64,
        bytes: top.max(1) as f64,
    };
    let mut out = head(title);
    axes(&mut out, &scale, calls, top);
    for (number, a) in plan.allocations.iter().enumerate() {
        boxed(&mut out, &scale, calls, number, a, base[a.memory]);
    }
    if let Some(device) = plan.devices().first() {
        in_use(&mut out, &scale, &plan.in_use(*device));
    }
    out.push_str("</svg>\n");
    out
}

fn head(title: &str) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" fill=\"#1a1a1a\">{title}</text>\n\
         <rect x=\"{LEFT}\" y=\"38\" width=\"14\" height=\"12\" fill=\"#7fb2d9\"/>\n\
         <text x=\"{}\" y=\"49\" fill=\"#444\">between kernels</text>\n\
         <rect x=\"{}\" y=\"38\" width=\"14\" height=\"12\" fill=\"#e8b06a\"/>\n\
         <text x=\"{}\" y=\"49\" fill=\"#444\">outputs</text>\n\
         <line x1=\"{}\" y1=\"44\" x2=\"{}\" y2=\"44\" stroke=\"#b3262a\" stroke-width=\"2\"/>\n\
         <text x=\"{}\" y=\"49\" fill=\"#444\">sum of what is in use</text>\n",
        LEFT + 20.0,
        LEFT + 140.0,
        LEFT + 160.0,
        LEFT + 230.0,
        LEFT + 252.0,
        LEFT + 258.0,
    )
}

/// Lines at round numbers, and what they are.
fn axes(out: &mut String, scale: &Scale, calls: usize, top: usize) {
    for n in round(top, 6) {
        let y = scale.y(n);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            bytes(n)
        );
    }
    for n in round(calls, 12) {
        let x = scale.x(n);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#eeeeee\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{n}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">CALL</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 12.0
    );
}

/// Round numbers from 0 to `most`, about so many.
fn round(most: usize, count: usize) -> Vec<usize> {
    // Of bytes they are of the unit that they are told in.
    let unit = match most {
        n if n >= 1 << 30 && count < 10 => 1 << 20,
        n if n >= 1 << 20 && count < 10 => 1 << 20,
        n if n >= 1 << 10 && count < 10 => 1 << 10,
        _ => 1,
    };
    let rough = (most as f64 / unit as f64 / count as f64).max(1e-9);
    let magnitude = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * magnitude * unit as f64);
    let fits = |s: &&f64| **s >= rough * unit as f64;
    let step = steps.iter().find(fits).copied().unwrap_or(steps[3]);
    let step = (step as usize).max(1);
    (0..=most / step).map(|k| k * step).collect()
}

fn boxed(
    out: &mut String,
    scale: &Scale,
    calls: usize,
    number: usize,
    a: &Allocation,
    base: usize,
) {
    if a.bytes == 0 {
        return;
    }
    let end = if a.output { calls } else { a.steps.1 + 1 };
    let x = scale.x(a.steps.0);
    let width = scale.x(end) - x;
    let y = scale.y(base + a.offset + a.bytes);
    let height = scale.y(base + a.offset) - y;
    // Neighbours are told apart by their shade.
    let shade = (number * 7) % 5;
    let fill = match a.output {
        true => ["#e8b06a", "#efc48c", "#e0a050", "#f2cf9f", "#dca25c"][shade],
        false => ["#7fb2d9", "#a3c9e6", "#5f9bc9", "#b9d7ee", "#8fbfdd"][shade],
    };
    let last = if a.output {
        calls.saturating_sub(1)
    } else {
        a.steps.1
    };
    let _ = writeln!(
        out,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\" \
         stroke=\"#ffffff\" stroke-width=\"0.4\"><title>buffer {number}: {}, CALLs {} to {last}</title></rect>",
        bytes(a.bytes),
        a.steps.0
    );
    if width > 40.0 && height > 14.0 {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#223\">{number}</text>",
            x + 4.0,
            y + height / 2.0 + 4.0
        );
    }
}

/// The sum of what is in use, as a line of steps.
fn in_use(out: &mut String, scale: &Scale, sums: &[usize]) {
    let mut points = String::new();
    for (call, &sum) in sums.iter().enumerate() {
        let y = scale.y(sum);
        let _ = write!(
            points,
            "{:.2},{y:.2} {:.2},{y:.2} ",
            scale.x(call),
            scale.x(call + 1)
        );
    }
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#b3262a\" stroke-width=\"1.6\"/>",
        points.trim_end()
    );
}
