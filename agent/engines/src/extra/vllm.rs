//! Flags of `vllm serve`, by its source of 0.32: which the admin may give, and why the others are the box's.
//!
//! What is not listed as the admin's is refused: this engine has some 250 flags, many of which import code or read and write files by their
//! values, and each version brings new ones.

use super::{
    Owned,
    Why::{Access, Cards, Code, File, Life, Listening, Model, Name, Outside, Path, Telling, Text, Trust, Window},
    value::Kind::{self, Beside, Nothing, Object, One, Plain},
};

/// The admin's, with what follows them.
pub(super) const ALLOWED: &[(&[&str], Kind)] = &[
    (&["--enforce-eager", "--enable-prefix-caching", "--enable-chunked-prefill", "--async-scheduling", "--disable-sliding-window"], Nothing),
    (&["--enable-auto-tool-choice", "--exclude-tools-when-tool-choice-none", "--return-tokens-as-token-ids"], Nothing),
    (&["--enable-per-request-metrics", "--enable-server-load-tracking", "--enable-force-include-usage"], Nothing),
    (&["--enable-expert-parallel", "-ep", "--disable-custom-all-reduce", "--disable-cascade-attn", "--disable-hybrid-kv-cache-manager"], Nothing),
    (&["--calculate-kv-scales", "--skip-mm-profiling", "--language-model-only", "-O0", "-O1", "-O2", "-O3"], Nothing),
    (&["--gpu-memory-utilization", "--device-memory-utilization", "--kv-cache-memory-bytes", "--cpu-offload-gb", "--swap-space"], Plain),
    (&["--seed", "--dtype", "--quantization", "-q", "--kv-cache-dtype", "--block-size", "--prefix-caching-hash-algo"], Plain),
    (&["--max-num-batched-tokens", "--max-num-partial-prefills", "--max-long-partial-prefills", "--long-prefill-token-threshold"], Plain),
    (&["--scheduling-policy", "--max-logprobs", "--stream-interval", "--sse-keep-alive-interval", "--optimization-level"], Plain),
    (&["--tool-call-parser", "--reasoning-parser", "--response-role", "--chat-template-content-format"], Plain),
    (&["--attention-backend", "--mm-processor-cache-gb", "--runner", "--convert"], Plain),
    (&["--model-impl"], One(&["auto", "vllm", "transformers"])),
    (&["--tokenizer-mode"], One(&["auto", "hf", "slow", "mistral"])),
    (&["--config-format"], One(&["auto", "hf", "mistral"])),
    (&["--generation-config"], One(&["auto", "vllm"])),
    (&["--load-format"], One(&["auto", "safetensors", "dummy"])),
    (&["--hf-overrides"], Object(&["rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings", "sliding_window"])),
    (&["--speculative-config"], Object(&["method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"])),
    (&["--compilation-config", "-cc"], Object(&["mode", "level", "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"])),
    (&["--limit-mm-per-prompt"], Object(&["image", "video", "audio"])),
    (&["--override-generation-config"], Object(&["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens"])),
    (&["--default-chat-template-kwargs"], Object(&["enable_thinking", "thinking", "reasoning_effort"])),
    (&["--chat-template"], Beside),
];

/// Refused with a sentence of their own.
pub(super) const OWNED: &[Owned] = &[
    (&["--host", "--port", "--uds", "--root-path", "--grpc", "--grpc-port", "--headless", "--api-server-count", "-asc"], Listening),
    (&["--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers", "--enable-ssl-refresh"], Listening),
    (&["--api-key", "--allow-credentials", "--allowed-origins", "--allowed-methods", "--allowed-headers"], Access),
    (&["--model", "--model-tag", "--revision", "--code-revision", "--tokenizer-revision", "--hf-token", "--download-dir"], Model),
    (&["--served-model-name"], Name),
    (&["--max-model-len", "--max-num-seqs", "--max-num-active-seqs"], Window),
    (&["--max-num-queued-reqs", "--max-num-queued-tokens"], Window),
    (&["--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--prefill-context-parallel-size", "-pcp"], Cards),
    (&["--decode-context-parallel-size", "-dcp", "--device-ids", "--distributed-executor-backend", "--nnodes", "-n", "--node-rank", "-r"], Cards),
    (&["--master-addr", "--master-port", "--data-parallel-size", "-dp", "--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr"], Cards),
    (&["--data-parallel-size-local", "-dpl", "--data-parallel-address", "-dpa", "--data-parallel-rpc-port", "-dpp"], Cards),
    (&["--data-parallel-backend", "-dpb", "--data-parallel-external-lb", "-dpe", "--data-parallel-hybrid-lb", "-dph"], Cards),
    (&["--data-parallel-multi-port-external-lb", "-dpm", "--data-parallel-supervisor-port"], Cards),
    (&["--disable-log-stats", "--log-config-file", "--logging-config", "--log-level", "--uvicorn-log-level"], Telling),
    (&["--disable-uvicorn-access-log", "--disable-access-log-for-endpoints", "--aggregate-engine-logging", "--use-tqdm-on-load"], Telling),
    (&["--enable-prompt-tokens-details", "--enable-request-id-headers"], Telling),
    (&["--enable-log-requests", "--enable-log-outputs", "--enable-log-deltas", "--max-log-len", "--otlp-traces-endpoint"], Text),
    (&["--tool-server", "--allowed-local-media-path", "--allowed-media-domains", "--omni", "--kv-events-config"], Outside),
    (&["--help", "-h", "--version", "-v", "--shutdown-timeout"], Life),
    (&["--config"], File),
    (&["--trust-remote-code", "--allow-remote-code"], Trust),
    (&["--middleware", "--logits-processors", "--logits-processor-pattern", "--worker-cls", "--worker-extension-cls", "--scheduler-cls"], Code),
    (&["--tool-parser-plugin", "--reasoning-parser-plugin", "--io-processor-plugin", "--model-loader-extra-config"], Code),
    (&["--kv-transfer-config", "--ec-transfer-config", "--weight-transfer-config", "--additional-config"], Code),
    (&["--lora-modules", "--prompt-adapters", "--tokenizer", "--hf-config-path", "--profiler-config"], Path),
];
