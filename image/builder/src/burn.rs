//! Writing a stick: the device is shown, confirmed by its name, written and read back.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use warden_domain::units::Bytes;
use warden_install::choose;
use warden_install::sysfs::Kernel;
use warden_install::write::{self, Region};

use crate::fault::{Done, Fault};
use crate::files;
use crate::steps::step;

/// Where devices are looked for: the machine's own places, or made-up ones in a test.
pub(crate) struct Places {
    kernel: Kernel,
    dev: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self { kernel: Kernel::default(), dev: "/dev".into() }
    }
}

/// Writes `image` onto `device` after a question on standard output, answered on `answers`.
pub(crate) fn burn(places: &Places, image: &Path, device: &Path, answers: &mut dyn BufRead) -> Done {
    let refused = |cause: String| Fault::refused(device.display().to_string(), cause, "name a whole disk that is not in use, such as /dev/sdx");
    let real = device.canonicalize().map_err(|error| refused(error.to_string()))?;
    let blank = |name: &str| write::is_blank(&places.dev.join(name));
    let named = real.strip_prefix(&places.dev).ok().and_then(Path::to_str);
    let disk = named.and_then(|name| places.kernel.named(name, &blank)).ok_or_else(|| refused("it is not a whole disk".to_owned()))?;
    let length = Bytes(files::length(image)?);
    choose::admit(&disk, length).map_err(|refusal| refused(refusal.to_string()))?;
    println!("EVERYTHING on this device will be erased:\n  {}", disk.line());
    print!("Type {} to go on: ", disk.name);
    let _ = std::io::stdout().flush();
    let mut typed = String::new();
    answers.read_line(&mut typed).map_err(Fault::io("cannot read the answer", "standard input"))?;
    if typed.trim() != disk.name {
        return Err(refused("it was not confirmed, nothing was written".to_owned()));
    }
    let region = Region::device(&real);
    step("stick: writing", || {
        // An older table at the end of a larger stick would otherwise stay and be found.
        let held = write::hold(&real).map_err(Fault::io("cannot write", &real))?;
        write::clear_ends(&held, disk.size).map_err(Fault::io("cannot write", &real))?;
        write::copy(image, &region, length, |_| (), |_| ()).map_err(Fault::io("cannot write", &real))
    })?;
    let read = || write::difference(image, std::slice::from_ref(&region), length, |_| ()).map_err(Fault::io("cannot read", &real));
    match step("stick: reading back", read)? {
        None => Ok(()),
        Some(_) => Err(refused("it reads back differently; the stick is faulty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    const STICK: u64 = 24 << 20;

    /// A machine with one stick, whose device is a plain file, and an image for it.
    fn machine(more: &[(&str, &str)]) -> (tempfile::TempDir, Places, PathBuf, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let block = top.path().join("sys/block/sdx");
        fs::create_dir_all(block.join("device")).unwrap();
        let dev = top.path().join("dev");
        fs::create_dir(&dev).unwrap();
        let device = dev.canonicalize().unwrap().join("sdx");
        for (name, text) in [("size", (STICK / 512).to_string().as_str()), ("dev", "8:240")].iter().chain(more) {
            fs::write(block.join(name), text).unwrap();
        }
        fs::write(&device, vec![0xaa; usize::try_from(STICK).unwrap()]).unwrap();
        fs::write(top.path().join("mounts"), "").unwrap();
        let image = top.path().join("stick.img");
        fs::write(&image, (0..9u32 << 20).map(|n| u8::try_from(n % 251).unwrap()).collect::<Vec<_>>()).unwrap();
        let kernel = Kernel { sys: top.path().join("sys"), mounts: top.path().join("mounts") };
        let dev = dev.canonicalize().unwrap();
        (top, Places { kernel, dev }, image, device)
    }

    #[test]
    fn a_confirmed_stick_holds_the_image_and_no_older_table_at_its_end() {
        let (_top, places, image, device) = machine(&[]);
        burn(&places, &image, &device, &mut "sdx\n".as_bytes()).unwrap();
        let (written, wanted) = (fs::read(&device).unwrap(), fs::read(&image).unwrap());
        assert!(written[..wanted.len()] == wanted[..]);
        assert!(written[written.len() - (1 << 20)..].iter().all(|byte| *byte == 0));
        assert_eq!(written.len() as u64, STICK);
    }

    #[test]
    fn nothing_is_written_without_the_name_or_to_what_must_not_be_erased() {
        let untouched = |device: &Path| fs::read(device).unwrap().iter().all(|byte| *byte == 0xaa);
        let (_top, places, image, device) = machine(&[]);
        for typed in ["", "\n", "yes\n", "sd\n"] {
            assert!(burn(&places, &image, &device, &mut typed.as_bytes()).is_err());
        }
        File::options().append(true).open(&image).unwrap().set_len(STICK + 1).unwrap();
        let said = burn(&places, &image, &device, &mut "sdx\n".as_bytes()).unwrap_err().to_string();
        assert!(said.contains("too small") && untouched(&device), "{said}");
        assert!(burn(&places, &image, &image, &mut "stick.img\n".as_bytes()).is_err(), "a file is no disk");
        let (_top, places, image, device) = machine(&[("ro", "1")]);
        assert!(burn(&places, &image, &device, &mut "sdx\n".as_bytes()).is_err() && untouched(&device));
        let (top, places, image, device) = machine(&[]);
        fs::write(top.path().join("mounts"), "1 1 8:240 / /home rw - ext4 /dev/sdx rw\n").unwrap();
        assert!(burn(&places, &image, &device, &mut "sdx\n".as_bytes()).is_err() && untouched(&device));
    }
}
