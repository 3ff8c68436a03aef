use super::*;

fn refusal(engine: EngineKind, extra: &[&str]) -> Option<Problem> {
    check_extra_args(engine, &extra.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).err()
}

/// Every spelling of a long flag that one of the parsers could take.
fn spellings(name: &str) -> Vec<Vec<String>> {
    let low = format!("--{}", name[2..].replace('-', "_"));
    let half = format!("--{}", name[2..].replacen('-', "_", 1));
    let mut all = Vec::new();
    for form in [name.to_owned(), low, half] {
        all.push(vec![form.clone()]);
        all.push(vec![form.clone(), "1".to_owned()]);
        all.push(vec![format!("{form}=1")]);
        all.push(vec![format!("{form}=")]);
        all.push(vec![format!("{form} 1")]);
        all.push(vec!["--seed".to_owned(), "7".to_owned(), form.clone(), "1".to_owned()]);
        all.push(vec![form.clone(), "1".to_owned(), form.clone(), "2".to_owned()]);
        // As the value of another flag: one parser takes it so, the other does not.
        all.push(vec!["--seed".to_owned(), form]);
    }
    all.push(vec![format!("--no-{}", &name[2..])]);
    all
}

#[test]
fn flags_of_the_box_are_refused_in_every_spelling() {
    for (engine, owned) in [(EngineKind::LlamaCpp, llama::OWNED), (EngineKind::Vllm, vllm::OWNED)] {
        for name in owned.iter().flat_map(|(names, _)| *names) {
            let tried: Vec<Vec<String>> = if name.starts_with("--") {
                spellings(name)
            } else {
                vec![vec![(*name).to_owned()], vec![(*name).to_owned(), "1".to_owned()], vec![format!("{name}=1")], vec![format!("{name} 1")]]
            };
            for extra in tried {
                let problem = check_extra_args(engine, &extra).expect_err(&format!("{engine:?} {extra:?}"));
                assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Invalid, Some("extra_args")), "{extra:?}");
                assert!(problem.message.contains(name) && problem.hint.is_some(), "{extra:?}: {}", problem.message);
            }
        }
    }
}

#[test]
fn names_cut_short_are_refused_where_the_engine_takes_them() {
    for name in vllm::OWNED.iter().flat_map(|(names, _)| *names).filter(|name| name.starts_with("--")) {
        for end in 3..name.len() {
            let cut = &name[..end];
            if vllm::ALLOWED.iter().any(|(names, _)| names.contains(&cut)) {
                continue;
            }
            for form in [cut.to_owned(), format!("{cut}=1"), cut[2..].replace('-', "_").replacen("", "--", 1)] {
                assert!(refusal(EngineKind::Vllm, &[&form]).is_some(), "{form} can be read as {name}");
            }
        }
    }
    for short in ["-t", "-tp", "-tp2", "-tp=2", "-n", "-n2", "-r1", "-r", "-d", "-dp", "-p", "-dpe", "-as", "-h", "-v"] {
        assert!(refusal(EngineKind::Vllm, &[short, "2"]).is_some(), "{short}");
    }
    // llama.cpp takes whole names only, so the beginning of a name is another flag, or none.
    assert!(refusal(EngineKind::LlamaCpp, &["--mod", "x"]).is_none());
}

#[test]
fn the_share_of_cards_is_the_admins_when_it_is_one_and_written_whole() {
    for (extra, words) in [
        (&["--gpu-memory-utilization", "1.5"][..], "above 0 and up to 1"),
        (&["--gpu-memory-utilization"], "above 0 and up to 1"),
        (&["--device_memory_utilization=x"], "above 0 and up to 1"),
        (&["--gpu-mem", "0.5"], "is not among the arguments"),
        (&["--gpu_memory_util=0.5"], "is not among the arguments"),
        (&["--no-gpu-memory-utilization"], "is not among the arguments"),
        (&["--gpu-memory-utilization.x=0.5"], "write the value whole"),
    ] {
        assert!(refusal(EngineKind::Vllm, extra).is_some_and(|problem| problem.message.contains(words)), "{extra:?}");
    }
    assert!(refusal(EngineKind::Vllm, &["--gpu-memory-utilization", "0.5", "--device-memory-utilization=1"]).is_none());
}

#[test]
fn what_is_the_admins_passes() {
    let vllm: &[&[&str]] = &[
        &[],
        &["--gpu-memory-utilization", "0.8"],
        &["--gpu_memory_utilization=0.8"],
        &["--enforce-eager", "--seed", "-1"],
        &["--no-enable-prefix-caching", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"],
        &["--compilation-config", "{\"mode\": 3}", "-O3", "-q", "fp8", "-cc=3"],
        &["--hf-overrides", "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0}}"],
        &["--model-impl", "auto", "--max-num-batched-tokens", "8192", "--kv-cache-dtype=fp8", "-ep"],
        &["--chat-template=tools.jinja", "--speculative_config", "{\"method\":\"ngram\",\"num_speculative_tokens\":3}"],
    ];
    for extra in vllm {
        assert_eq!(refusal(EngineKind::Vllm, extra), None, "{extra:?}");
    }
    let llama: &[&[&str]] = &[
        &["-ngl", "20", "--tensor-split", "3,1"],
        &["--flash-attn", "on", "-ctk", "q8_0", "--cache-ram", "0"],
        &["--mmproj", "p.gguf", "--no-mmap", "-ot", "exps=CPU", "--threads", "4", "-C", "ff"],
        &["--chat-template-kwargs", "{\"enable_thinking\": false}", "--temp", "-0.5"],
    ];
    for extra in llama {
        assert_eq!(refusal(EngineKind::LlamaCpp, extra), None, "{extra:?}");
    }
}

#[test]
fn each_refused_argument_gets_its_own_sentence() {
    let problem = refusal(EngineKind::Vllm, &["--port", "1", "--seed", "2", "--serv", "x", "--port", "2"]).unwrap();
    assert_eq!(
        problem.message,
        "`--port` says where the engine listens, and the box decides that. `--serv` is read as `--served-model-name`, which says under which \
         name the model is served, and the box decides that: change the model's name instead."
    );
    assert!(refusal(EngineKind::LlamaCpp, &["hello"]).unwrap().message.contains("no flag"));
    assert!(refusal(EngineKind::LlamaCpp, &["--seed", "1", "--"]).is_some());
    assert!(refusal(EngineKind::Vllm, &["--seed 1"]).unwrap().message.contains("two arguments"));
    assert!(refusal(EngineKind::Vllm, &["--seed", "a\0b"]).is_some());
    assert!(refusal(EngineKind::LlamaCpp, &["--seed"; 65]).unwrap().message.contains("at most 64"));
}

#[test]
fn nothing_of_vllm_imports_code_or_names_a_file_in_any_spelling() {
    let names = [
        "--trust-remote-code",
        "--middleware",
        "--logits-processors",
        "--worker-cls",
        "--worker-extension-cls",
        "--scheduler-cls",
        "--tool-parser-plugin",
        "--reasoning-parser-plugin",
        "--io-processor-plugin",
        "--lora-modules",
        "--tokenizer",
        "--hf-config-path",
        "--kv-transfer-config",
        "--additional-config",
        "--profiler-config",
        "--config",
        "--a-flag-of-the-next-version",
    ];
    for name in names {
        for extra in spellings(name) {
            assert!(check_extra_args(EngineKind::Vllm, &extra).is_err(), "{extra:?}");
        }
        for end in 4..name.len() {
            let allowed = |cut: &str| vllm::ALLOWED.iter().any(|(names, _)| names.contains(&cut));
            if !allowed(&name[..end]) {
                assert!(refusal(EngineKind::Vllm, &[&name[..end], "x"]).is_some(), "{}", &name[..end]);
            }
        }
    }
    for values in [
        &["--hf-overrides", "{\"auto_map\": {\"AutoModel\": \"x.Y\"}}"][..],
        &["--hf-overrides.auto_map", "x"],
        &["--hf_overrides={\"rope_parameters\":{\"auto_map\":1}}"],
        &["--speculative-config", "{\"model\": \"/data/other\"}"],
        &["--compilation-config", "{\"backend\": \"os.system\"}"],
        &["-cc.backend=os.system"],
        &["--compilation-config+", "x"],
        &["--chat-template", "/etc/passwd"],
        &["--chat-template=../x.jinja"],
        &["--chat-template", "{% for m in messages %}{% endfor %}"],
        &["--generation-config", "/etc"],
        &["--load-format", "pt"],
        &["--tokenizer-mode", "custom"],
        &["--seed"],
        &["--seed", "1", "/data/models/another"],
        &["--enforce-eager", "/data/models/another"],
        &["--tool-call-parser", "/tmp/p.py"],
    ] {
        assert!(refusal(EngineKind::Vllm, values).is_some(), "{values:?}");
    }
}

#[test]
fn llama_reads_and_writes_no_file_but_those_beside_its_model() {
    for name in llama::BESIDE {
        for bad in ["/etc/passwd", "../x", "a/b.gguf", ".hidden", "a,b"] {
            assert!(refusal(EngineKind::LlamaCpp, &[name, bad]).is_some(), "{name} {bad}");
        }
        assert!(refusal(EngineKind::LlamaCpp, &[name]).is_some(), "{name} without a value");
        assert!(refusal(EngineKind::LlamaCpp, &[&format!("{name}=x.gguf")]).is_some(), "{name} in one word");
        assert_eq!(refusal(EngineKind::LlamaCpp, &[name, "x.gguf"]), None);
    }
    for name in ["--lookup-cache-dynamic", "-lcd", "--control_vector", "--lora-scaled", "--log-file", "--slot-save-path"] {
        assert!(refusal(EngineKind::LlamaCpp, &[name, "x"]).is_some(), "{name}");
    }
}

#[test]
fn every_flag_of_llamas_help_that_takes_a_file_is_judged() {
    let help = include_str!("../../tests/golden/llama-file-flags.txt");
    let judged = |name: &str| llama::BESIDE.contains(&name) || llama::OWNED.iter().any(|(names, _)| names.contains(&name));
    let names: Vec<&str> = help.split_whitespace().filter(|word| word.starts_with('-')).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(judged(name), "{name} takes a file");
    }
}

#[test]
fn a_file_beside_the_model_is_named_whole() {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let folder = Path::new("/data/models/m");
    let llama = placed(EngineKind::LlamaCpp, &words(&["--mmproj", "p.gguf", "--seed", "1", "--model_draft", "d.gguf"]), folder);
    assert_eq!(llama, ["--mmproj", "/data/models/m/p.gguf", "--seed", "1", "--model_draft", "/data/models/m/d.gguf"]);
    let vllm = placed(EngineKind::Vllm, &words(&["--chat_template=t.jinja", "--enforce-eager", "--chat-template", "u.jinja"]), folder);
    assert_eq!(vllm, ["--chat_template=/data/models/m/t.jinja", "--enforce-eager", "--chat-template", "/data/models/m/u.jinja"]);
}
