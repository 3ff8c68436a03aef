//! The box's own flags of `vllm serve`, by its source of 0.32. Everything else is the admin's.

use super::{
    Owned,
    Why::{Access, Cards, File, Life, Listening, Model, Name, Outside, Telling, Text, Window},
};

/// Refused.
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
    (&["--tool-server", "--allowed-local-media-path", "--allowed-media-domains", "--omni"], Outside),
    (&["--help", "-h", "--version", "-v", "--shutdown-timeout"], Life),
    (&["--config"], File),
];

/// Whole names that are the beginning of one of the above and still the admin's.
pub(super) const OTHERS: &[&str] = &["--tokenizer", "-dc"];
