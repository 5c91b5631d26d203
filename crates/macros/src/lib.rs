//! Room `macros`: what is derived, and what is marked. Flows in: a struct or a function as it is written; flows out:
//! its implementations of the façade's traits, or the function that takes its place, as tokens.
//!
//! Invariant: whatever is written, what comes out is code, or an error of the compiler's at what is wrong.

mod item;
mod marked;
mod parameter;
mod tokens;

use item::{Field, Item};
use proc_macro::TokenStream;

/// Makes calls of a function calls of one body: it is traced once for all calls that look alike, and scheduled and
/// compiled once, as `monoglot::function` does of a closure. Its name, its parameters and what it gives stay.
///
/// Parameters are trees of tensors, by value or by reference: tensors, structs by `#[derive(Tensors)]`, tuples, lists,
/// slices, `Option<&T>`. Integers, bools, strings and what is marked `#[fixed]` (`Eq + Clone + Send + Sync`) are part of
/// what a body is for: another value has another body. A float is a `Tensor` in it. It gives a tree of tensors, or a
/// `Result` of one; where it is no `Result`, its tensors carry what went wrong. A method takes `&self` of a struct that
/// is a tree; in an implementation of a trait there is no place for the body of one. What it calls itself is a part of its body.
///
/// `#[function(checkpoint)]` keeps nothing of a call for its gradient but what is passed: see `Function::checkpoint`.
#[proc_macro_attribute]
pub fn function(mark: TokenStream, item: TokenStream) -> TokenStream {
    let made = marked::marked(mark, item);
    made.unwrap_or_else(|wrong| wrong.tokens())
}

/// Makes a struct a tree of tensors, which captured functions take and give. All fields are trees; one that is
/// marked `#[fixed]` is a value (`Eq + Clone`) that is part of what a function is captured for.
#[proc_macro_derive(Tensors, attributes(fixed))]
pub fn derive_tensors(input: TokenStream) -> TokenStream {
    let code = match Item::parse(input) {
        Ok(item) => tensors(&item),
        Err(message) => format!("::core::compile_error!({message:?});"),
    };
    let tokens = code.parse::<TokenStream>();
    tokens.expect("what is written here are tokens")
}

/// The implementations for a struct.
fn tensors(item: &Item) -> String {
    let Item {
        name,
        parameters,
        arguments,
        bounds,
        fields,
    } = item;
    let of_type = |t: &String| format!("{t}: ::monoglot::Tensors,");
    let trees: String = item.types().map(of_type).collect();
    let parameters = parameters.join(", ");
    let place = format!("{name}<{}>", arguments.join(", "));
    let bounds = format!("where {bounds} {trees}");
    let shown = |f: &Field| match f.fixed {
        true => format!("see(::monoglot::Leaf::Fixed(&self.{}));", f.name),
        false => format!("::monoglot::Tensors::leaves(&self.{}, see);", f.name),
    };
    let made = |f: &Field| match f.fixed {
        true => format!("{0}: ::core::clone::Clone::clone(&self.{0}),", f.name),
        false => format!(
            "{0}: ::monoglot::Tensors::rebuilt(&self.{0}, with),",
            f.name
        ),
    };
    let leaves: String = fields.iter().map(shown).collect();
    let rebuilt: String = fields.iter().map(made).collect();
    let passed = |of: &str, from: &str, how: &str| {
        format!(
            "impl<{parameters}> ::monoglot::Passed<{of}> for {from} {bounds} {{ \
                 fn passed(self) -> {of} {{ {how} }} \
             }}"
        )
    };
    let single = format!("({place},)");
    let borrowed = format!("&{place}");
    let implementations = [
        format!(
            "impl<{parameters}> ::monoglot::Tensors for {place} {bounds} {{ \
                 #[allow(unused_variables)] \
                 fn leaves<'leaf>(&'leaf self, see: &mut dyn ::core::ops::FnMut(::monoglot::Leaf<'leaf>)) \
                 {{ {leaves} }} \
                 #[allow(unused_variables)] \
                 fn rebuilt(&self, with: &mut dyn ::monoglot::Rebuild) -> Self {{ Self {{ {rebuilt} }} }} \
             }}"
        ),
        passed(&place, &place, "self"),
        passed(&single, &place, "(self,)"),
        passed(&place, &borrowed, "::monoglot::again(self)"),
        passed(&single, &borrowed, "(::monoglot::again(self),)"),
    ];
    implementations.concat()
}
