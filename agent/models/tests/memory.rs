//! What hostile files and a hostile hub can make this program hold in memory, counted by the allocator itself. One test alone in its program,
//! so that nothing else is counted.

#![allow(clippy::unwrap_used, reason = "helpers of tests: what they need and do not get fails the test")]
#![allow(unsafe_code, reason = "an allocator that counts is only possible so")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use warden_domain::{
    gpu::NoGpus,
    hub::{Hub, RepoAsk},
};
use warden_models::{HubParts, HubRoom, gguf::read_keys, hf};
use warden_store::Store;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; beside it only numbers are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;

/// The most that was held on the way, beyond what was held before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = work();
    (PEAK.load(Ordering::Relaxed).saturating_sub(before), done)
}

/// A weights file with this header.
fn tensors(folder: &std::path::Path, header: &str) {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend([0; 8]);
    fs::write(folder.join("model.safetensors"), file).unwrap();
}

#[test]
fn hostile_files_and_a_hostile_hub_cost_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let small = "[],".repeat(4 << 20);
    fs::write(dir.path().join("config.json"), format!("{{\"architectures\":[\"LlamaForCausalLM\"],\"x\":[{}0]}}", &small[..3 * MIB])).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), format!("{{\"chat_template\":[{}0]}}", &small[..3 * MIB])).unwrap();
    fs::write(dir.path().join("model.safetensors.index.json"), format!("{{\"metadata\":[{}0],\"weight_map\":{{}}}}", &small[..3 * MIB])).unwrap();
    tensors(dir.path(), &format!("{{\"w\":{{\"data_offsets\":[0,8],\"shape\":[{}0]}}}}", &small[..12 * MIB]));
    let (peak, model) = peak_of(|| hf::inspect(dir.path()).unwrap().unwrap());
    assert!(model.facts.has_chat_template == Some(true) && peak < 2 * MIB, "a folder took {peak} bytes");

    let weights: String = (0..100_000).map(|n| format!("\"{n}\":{{\"data_offsets\":[0,1]}},")).collect();
    tensors(dir.path(), &format!("{{{}\"w\":{{\"data_offsets\":[0,8]}}}}", weights));
    let (peak, _) = peak_of(|| hf::inspect(dir.path()).unwrap().unwrap());
    assert!(peak < 2 * MIB, "many weights took {peak} bytes");

    let header = lists();
    let (peak, keys) = peak_of(|| read_keys(&header, header.len() as u64).unwrap());
    assert!(keys.names().count() <= 2 && peak < MIB, "lists of a header took {peak} bytes");

    let endpoint = serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&dir.path().join("state")).unwrap();
        let parts = HubParts { store, state_dir: dir.path().join("state"), endpoint: Some(endpoint), gpus: Arc::new(NoGpus), version: "0" };
        let hub = HubRoom::open(parts).await.unwrap();
        let before = NOW.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        for number in 0..6 {
            let deep = hub.discover(&RepoAsk { repo: format!("lab/deep{number}"), revision: String::new() }).await.unwrap();
            assert_eq!(deep.choices.len(), 1);
        }
        for number in 0..2 {
            let endless = hub.discover(&RepoAsk { repo: format!("lab/endless{number}"), revision: String::new() }).await.unwrap_err();
            assert!(endless.message.contains("more than 20000 files"), "{endless}");
        }
        let (peak, kept) = (PEAK.load(Ordering::Relaxed) - before, NOW.load(Ordering::Relaxed).saturating_sub(before));
        assert!(peak < 64 * MIB, "the hub made the room hold {peak} bytes on the way");
        assert!(kept < 16 * MIB, "{kept} bytes are kept of 8 repositories");
    });
}

/// The header of a GGUF file with 2000 lists of 4096 numbers behind keys that nobody asks for.
fn lists() -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(2000u64.to_le_bytes());
    for number in 0..2000 {
        let key = format!("x.list{number}");
        file.extend((key.len() as u64).to_le_bytes());
        file.extend(key.as_bytes());
        file.extend(9u32.to_le_bytes());
        file.extend(0u32.to_le_bytes());
        file.extend(4096u64.to_le_bytes());
        file.extend([1; 4096]);
    }
    file
}

/// A hub whose lists of files never end, and whose descriptions are a million empty lists. It writes in small pieces.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _who_hangs_up_is_gone = answer(stream);
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let next = format!("link: <{path}>; rel=\"next\"\r\n");
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{more}\r\n");
    let blob = "0".repeat(40);
    if path.contains("/revision/") {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        write!(stream, "{}{{\"sha\":\"{blob}\",\"gated\":{deep},\"siblings\":[", head(""))?;
        for _ in 0..1000 {
            stream.write_all("[],".repeat(1000).as_bytes())?;
        }
        return stream.write_all(b"0]}");
    }
    if path.contains("/tree/") && path.contains("deep") {
        let file = |name: &str, size: u32| format!("{{\"type\":\"file\",\"path\":\"{name}\",\"oid\":\"{blob}\",\"size\":{size}}}");
        return write!(stream, "{}[{},{}]", head(""), file("config.json", 900_000), file("model.safetensors", 9));
    }
    if path.contains("/tree/") {
        write!(stream, "{}[", head(&next))?;
        let name = "n".repeat(190);
        for number in 0..3000 {
            write!(stream, "{{\"type\":\"file\",\"path\":\"{name}/{name}{number}\",\"oid\":\"{blob}\",\"size\":7}},")?;
        }
        return stream.write_all(b"{\"type\":\"file\",\"path\":\"../x\",\"oid\":\"\",\"size\":1}]");
    }
    write!(stream, "{}{{\"architectures\":[\"LlamaForCausalLM\"],\"quantization_config\":{{\"ignore\":[", head(""))?;
    for _ in 0..290 {
        stream.write_all("[],".repeat(1000).as_bytes())?;
    }
    stream.write_all(b"0]}}")
}
