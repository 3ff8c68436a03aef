use std::{
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn the_new_content_takes_the_place_and_nothing_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    write(&path, b"one").unwrap();
    write(&path, b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(names(folder.path()), ["count"]);
}

#[test]
fn a_reader_sees_the_old_content_or_the_new_one_and_never_a_part() {
    const LENGTH: usize = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("document");
    write(&path, &vec![b'0'; LENGTH]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let seen = fs::read(&path).unwrap();
                assert_eq!(seen.len(), LENGTH);
                assert!(seen.iter().all(|byte| Some(byte) == seen.first()), "a mixture was read");
            }
        });
        for round in 1..=40u8 {
            write(&path, &vec![b'0' + round % 10; LENGTH]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_secret_is_its_owners_from_before_its_first_byte_until_after_its_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    // What was there before was open to all; the secret must not inherit that.
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let mut coming = Coming::with_mode(&path, 0o600).unwrap();
    let unfinished = folder.path().join(".key.new");
    assert_eq!((mode_of(&unfinished), fs::metadata(&unfinished).unwrap().len()), (0o600, 0));
    coming.file().write_all(b"secret").unwrap();
    assert_eq!(mode_of(&unfinished), 0o600);
    coming.place().unwrap();
    assert_eq!((mode_of(&path), fs::read(&path).unwrap()), (0o600, b"secret".to_vec()));
    write_with_mode(&path, b"another", 0o600).unwrap();
    assert_eq!((mode_of(&path), names(folder.path())), (0o600, vec!["key".to_owned()]));
}

#[test]
fn whoever_holds_a_leftover_open_reads_nothing_of_the_next_secret() {
    let folder = tempfile::tempdir().unwrap();
    let (path, leftover) = (folder.path().join("key"), folder.path().join(".key.new"));
    fs::write(&leftover, "cut").unwrap();
    fs::set_permissions(&leftover, fs::Permissions::from_mode(0o666)).unwrap();
    let mut held = File::open(&leftover).unwrap();
    write_with_mode(&path, b"secret", 0o600).unwrap();
    let mut seen = String::new();
    held.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "cut");
    assert_eq!((mode_of(&path), names(folder.path())), (0o600, vec!["key".to_owned()]));
}

#[test]
fn a_link_laid_in_the_way_is_removed_and_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("key"), folder.path().join("victim"));
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, folder.path().join(".key.new")).unwrap();
    write_with_mode(&path, b"secret", 0o600).unwrap();
    assert_eq!((fs::read(&victim).unwrap(), fs::read(&path).unwrap()), (b"untouched".to_vec(), b"secret".to_vec()));
}

#[test]
fn a_cut_in_the_middle_leaves_the_old_content_and_the_next_write_clears_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count");
    write(&path, b"old").unwrap();
    let mut coming = Coming::new(&path).unwrap();
    coming.file().write_all(b"ha").unwrap();
    // A power cut runs no destructor.
    std::mem::forget(coming);
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"old".to_vec(), vec![".count.new".to_owned(), "count".to_owned()]));
    write(&path, b"new").unwrap();
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"new".to_vec(), vec!["count".to_owned()]));
}

#[test]
fn content_that_is_given_up_leaves_the_old_one_and_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle");
    write(&path, b"old").unwrap();
    let mut coming = Coming::new(&path).unwrap();
    coming.file().write_all(b"half").unwrap();
    drop(coming);
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"old".to_vec(), vec!["bundle".to_owned()]));
}

#[test]
fn a_write_that_cannot_take_its_name_clears_up_after_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taken");
    fs::create_dir(&path).unwrap();
    assert!(write(&path, b"x").is_err());
    assert!(write(Path::new("/"), b"x").is_err());
    assert_eq!(names(folder.path()), ["taken"]);
}

#[test]
fn a_part_that_was_kept_is_placed_under_its_name_or_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (part, path) = (folder.path().join("model.part"), folder.path().join("model"));
    fs::write(&part, "half").unwrap();
    let mut file = OpenOptions::new().append(true).open(&part).unwrap();
    file.write_all(b" and half").unwrap();
    assert!(place(&file, &part, &folder.path().join("nowhere/model")).is_err());
    assert_eq!(names(folder.path()), ["model.part"]);
    place(&file, &part, &path).unwrap();
    assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"half and half".to_vec(), vec!["model".to_owned()]));
}

#[test]
fn a_bare_name_means_the_current_folder() {
    assert_eq!(folder_of(Path::new("name")), Path::new("."));
    assert_eq!(beside(Path::new("name")).unwrap(), Path::new(".name.new"));
}

#[test]
fn what_all_programs_read_is_readable_and_a_leftover_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.json");
    std::fs::write(folder.path().join(".record.json.new"), "cut").unwrap();
    clear(&path).unwrap();
    assert!(!folder.path().join(".record.json.new").exists());
    clear(&path).unwrap();
    write_for_all(&path, b"x").unwrap();
    assert_eq!(mode_of(&path), 0o644);
}
