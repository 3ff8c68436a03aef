//! Writing a stick: the device is shown, confirmed by its name, written and read back.

use std::io::Write;
use std::path::Path;

use warden_domain::units::Bytes;
use warden_install::choose;
use warden_install::sysfs::Kernel;
use warden_install::write::{self, Region};

use crate::fault::{Done, Fault};
use crate::files;
use crate::steps::step;

/// Writes `image` onto `device` after a question.
pub(crate) fn burn(image: &Path, device: &Path) -> Done {
    let refused = |cause: String| Fault::refused(device.display().to_string(), cause, "name a whole disk that is not in use, such as /dev/sdx");
    let real = device.canonicalize().map_err(|error| refused(error.to_string()))?;
    let blank = |name: &str| write::is_blank(&Path::new("/dev").join(name));
    let disks = Kernel::default().disks(None, &blank, &|_| None);
    let disk = disks.iter().find(|disk| Path::new("/dev").join(&disk.name) == real).ok_or_else(|| refused("it is not a whole disk".to_owned()))?;
    let length = Bytes(files::length(image)?);
    choose::admit(disk, length).map_err(|refusal| refused(refusal.to_string()))?;
    println!("EVERYTHING on this device will be erased:\n  {}", disk.line());
    print!("Type {} to go on: ", disk.name);
    let _ = std::io::stdout().flush();
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed).map_err(Fault::io("cannot read the answer", "standard input"))?;
    if typed.trim() != disk.name {
        return Err(refused("it was not confirmed, nothing was written".to_owned()));
    }
    let region = Region::device(&real);
    step("stick: writing", || write::copy(image, &region, length, |_| (), |_| ()).map_err(Fault::io("cannot write", &real)))?;
    let read = || write::difference(image, std::slice::from_ref(&region), length, |_| ()).map_err(Fault::io("cannot read", &real));
    match step("stick: reading back", read)? {
        None => Ok(()),
        Some(_) => Err(refused("it reads back differently; the stick is faulty".to_owned())),
    }
}
