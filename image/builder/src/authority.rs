//! Signed variables for firmware: who it takes its keys from. Written here because the usual tool signs something else than the firmware
//! hashes: variable name, owner's GUID, attributes, time, content, in this order and nothing in between.

use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::{Keys, Purpose};
use crate::tool::run;

/// Non-volatile, for boot and run time, authenticated by time.
const ATTRIBUTES: u32 = 0x27;
/// `EFI_GLOBAL_VARIABLE` and `EFI_IMAGE_SECURITY_DATABASE`, in the firmware's byte order.
const GLOBAL: &str = "61dfe48bca93d211aa0d00e098032b8c";
const DATABASE: &str = "cbb219d73a3d9645a3bcdad00e67656f";
/// `EFI_CERT_TYPE_PKCS7`.
const PKCS7: &str = "9dd2af4adf68ee498aa9347d375665a7";
/// Any moment does for a variable that is not there yet, and the same one each time gives the same content: 2025-12-01, 00:00.
const TIME: [u8; 16] = [0xe9, 0x07, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Signs `list` as the content of the variable `name` with the platform's key.
pub(crate) fn sign(builder: &BuilderRoot, keys: &Keys, name: &str, list: &Path, work: &Path) -> Done<Vec<u8>> {
    let content = std::fs::read(list).map_err(Fault::io("cannot read", list))?;
    let (message, signature): (PathBuf, PathBuf) = (work.join(format!("{name}.message")), work.join(format!("{name}.p7")));
    files::write(&message, message_of(name, &content)?)?;
    let mut command = builder.command("openssl", &[work, keys.dir()]);
    command.args(["cms", "-sign", "-binary", "-noattr", "-md", "sha256", "-outform", "DER"]);
    command.arg("-signer").arg(keys.certificate(Purpose::Platform)).arg("-inkey").arg(keys.key(Purpose::Platform));
    run("openssl", command.arg("-in").arg(&message).arg("-out").arg(&signature))?;
    let signature = std::fs::read(&signature).map_err(Fault::io("cannot read", &signature))?;
    let signed =
        inner(&signature).ok_or_else(|| Fault::refused("openssl", "its signature has another form", "check its version in the builder root"))?;
    variable(signed, &content)
}

/// What is signed.
fn message_of(name: &str, content: &[u8]) -> Done<Vec<u8>> {
    let owner = if name == "db" { DATABASE } else { GLOBAL };
    let mut message: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    message.extend(bytes(owner)?);
    message.extend(ATTRIBUTES.to_le_bytes());
    message.extend(TIME);
    message.extend(content);
    Ok(message)
}

/// What is written to the firmware: the time, the signature in its envelope, the content.
fn variable(signed: &[u8], content: &[u8]) -> Done<Vec<u8>> {
    let length = u32::try_from(24 + signed.len()).map_err(|_| Fault::refused("signature", "it is too long", "report it"))?;
    let mut variable = TIME.to_vec();
    variable.extend(length.to_le_bytes());
    // Revision 2.0, an envelope for EFI GUIDs.
    variable.extend([0x00, 0x02, 0xf1, 0x0e]);
    variable.extend(bytes(PKCS7)?);
    variable.extend(signed);
    variable.extend(content);
    Ok(variable)
}

/// The signed data without the outer wrapper that says what it is: the firmware knows.
fn inner(der: &[u8]) -> Option<&[u8]> {
    let outer = value(der, 0x30)?;
    let after_type = outer.get(2 + usize::from(*outer.get(1)?)..).filter(|_| outer.first() == Some(&0x06))?;
    value(after_type, 0xa0)
}

/// The value of one DER element of that tag that fills `der`.
fn value(der: &[u8], tag: u8) -> Option<&[u8]> {
    if der.first() != Some(&tag) {
        return None;
    }
    let first = *der.get(1)?;
    let (length, at) = if first < 0x80 {
        (usize::from(first), 2)
    } else {
        let count = usize::from(first & 0x7f);
        (der.get(2..2 + count)?.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)), 2 + count)
    };
    der.get(at..).filter(|rest| rest.len() == length)
}

fn bytes(hexadecimal: &str) -> Done<Vec<u8>> {
    hex::decode(hexadecimal).map_err(|e| Fault::refused("GUID", e.to_string(), "report it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_what_the_firmware_hashes() {
        let message = message_of("PK", b"list").unwrap();
        assert_eq!(&message[..4], b"P\0K\0");
        assert_eq!(hex::encode(&message[4..20]), GLOBAL);
        assert_eq!(&message[20..24], [0x27, 0, 0, 0]);
        assert_eq!((&message[24..40], &message[40..]), (&TIME[..], &b"list"[..]));
        assert_eq!(hex::encode(&message_of("db", b"").unwrap()[4..20]), DATABASE);
    }

    #[test]
    fn the_wrapper_goes_and_the_signed_data_stay() {
        let wrapped = [0x30, 0x09, 0x06, 0x02, 0x2a, 0x03, 0xa0, 0x03, 0x30, 0x01, 0x00];
        assert_eq!(inner(&wrapped), Some(&[0x30, 0x01, 0x00][..]));
        assert_eq!(inner(&wrapped[1..]), None);
        assert_eq!(inner(&[0x30, 0x01, 0x00]), None);
    }

    #[test]
    fn the_envelope_tells_its_own_length() {
        let variable = variable(&[1, 2, 3], b"list").unwrap();
        assert_eq!(u32::from_le_bytes(variable[16..20].try_into().unwrap()), 27);
        assert_eq!(variable.len(), 16 + 27 + 4);
    }
}
