//! Builds images, engine packs and sticks, and boots them.
//!
//! In go the project's `image/` folder, Debian packages from the host's own mirror and the project's programs; out come a bootable
//! disk, its parts and a manifest under `target/image/`. Tools run by chroot in a builder root; no loop device, no mounted image.

mod apt;
mod audit;
mod authority;
mod binaries;
mod boot;
mod bootstrap;
mod build;
mod bundle;
mod burn;
mod cli;
mod data;
mod debs;
mod disk;
mod fault;
mod files;
mod gpt;
mod initrd;
mod keys;
mod lockfile;
mod manifest;
mod mirror;
mod modules;
mod newc;
mod pack;
mod prune;
mod recipe;
mod rootfs;
mod seal;
mod steps;
mod stick;
mod stock;
mod tool;
mod trust;
mod try_stick;
mod uki;
mod vars;
mod workshop;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Verb};
use crate::fault::Done;
use crate::stock::Stock;
use crate::workshop::{Workshop, need_root};

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("warden-image: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Done {
    let shop = Workshop::open()?;
    if let Verb::FlipByte { file, offset } = &cli.verb {
        return pack::flip_byte(file, *offset);
    }
    if matches!(cli.verb, Verb::Programs) {
        return binaries::Binaries::make(&shop, false).map(drop);
    }
    need_root()?;
    match &cli.verb {
        Verb::Builder => Stock::open(&shop)?.builder().map(|builder| println!("{}", builder.dir().display())),
        Verb::Root(args) => build::root(&shop, args),
        Verb::Image(args) => build::image(&shop, args),
        Verb::Stick(args) => build::stick(&shop, args),
        Verb::VmInstall(args) => try_stick::run(&shop, &Stock::open(&shop)?.builder()?, args),
        Verb::Bundle(args) => build::bundle(&shop, args),
        Verb::Vars { flavour } => {
            let builder = Stock::open(&shop)?.builder()?;
            vars::build(&shop, &builder, &keys::Keys::open(shop.keys(), &builder)?, *flavour)
        }
        Verb::Packs(args) => build::packs(&shop, args),
        Verb::Vm(args) => boot::boot(&shop, &Stock::open(&shop)?.builder()?, args),
        Verb::CheckRoot(args) => build::check_root(&shop, args),
        Verb::Lock { profile } => build::lock(&shop, *profile),
        Verb::Programs | Verb::FlipByte { .. } => Ok(()),
    }
}
