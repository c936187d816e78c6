"""Names, limits, choices and defaults: each is written here once, and this file imports nothing.

The model repository's own files cannot import it; tests/unit/test_contract.py holds them equal.
"""

# --- models -------------------------------------------------------------------------------------

TOKENIZER = "text_tokenizer"
CLASSIFIER = "text_classifier_onnx"
ENSEMBLE = "text_pipeline_ensemble"
EMBEDDING_ENSEMBLE = "text_embedding_ensemble"
STEPS = (TOKENIZER, CLASSIFIER)
ENSEMBLES = (ENSEMBLE, EMBEDDING_ENSEMBLE)
MODELS = (*STEPS, *ENSEMBLES)

# --- files of a version -------------------------------------------------------------------------

GRAPH = "model.onnx"
LABELS = "labels.txt"
REPORT = "export.json"
REPORT_FORMAT = 2
"""Of REPORT and of the graph beside it. 2: the sizes of its outputs are open, without which
Triton's C++ backend does not load it."""

# --- tensors ------------------------------------------------------------------------------------

TEXT = "text"
TEXT_PAIR = "text_pair"
TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The tokenizer's outputs that the classifier takes, INT64 [tokens] each."""
ITEM_LENGTH = "item_length"
"""The graph's fourth input, INT32 [items]: the padded length of every item of the batch."""
TENSOR_OUTPUTS = ("scores", "probabilities", "logits", "embedding")
"""The classifier's outputs beside `labels`, FP32 each."""
CLASSIFIER_OUTPUTS = ("labels", *TENSOR_OUTPUTS)
TEXT_COUNTS = ("token_count", "truncated")
"""What the tokenizer says about each text, INT32 [1] and BOOL [1]."""
ENSEMBLE_OUTPUTS = ("labels", "scores", "probabilities", "logits", *TEXT_COUNTS)

# --- request parameters -------------------------------------------------------------------------

OVERFLOWS = ("truncate", "error", "window")
"""What happens to a text that is too long; the default first."""
PARAMETERS = ("max_tokens", "overflow", "stride")
HEALTH_CHECK = "health_check"
"""A boolean parameter: a request that no metric of texts and labels counts."""

# --- limits -------------------------------------------------------------------------------------

MAX_TEXTS = 64
"""Texts of a request: `max_batch_size` of tokenizer and ensembles."""
MAX_WINDOWS = 32
"""Windows of a text."""
MAX_REQUEST_WINDOWS = 64
"""Windows of all texts of a request."""
MAX_IN_FLIGHT = 256
"""Requests at a time of one client."""

# --- choices, the default first -----------------------------------------------------------------

LAYOUTS = ("packed", "padded")
"""The default is padded where the architecture cannot be packed."""
DEVICES = ("cpu", "gpu")
PRECISIONS = {"cpu": ("fp32", "int8"), "gpu": ("fp16", "fp32")}
"""What each device takes."""
ALL_PRECISIONS = ("fp32", "int8", "fp16")
POOLINGS = ("mean", "cls", "last")
"""Which hidden states become an embedding: those of all tokens, of the first, of the last."""
MODEL_CONTROLS = ("none", "poll", "explicit")
"""How a server learns of new versions: Triton's --model-control-mode."""

# --- defaults -----------------------------------------------------------------------------------

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
DEFAULT_URL = f"127.0.0.1:{PORTS['grpc']}"
"""The gRPC endpoint."""
DEFAULT_HTTP_URL = f"127.0.0.1:{PORTS['http']}"
DEFAULT_CONFIGURATION = "cpu"
"""For `--model-config-name`: <model>/configs/cpu.pbtxt."""
TUNED_CONFIGURATION = "tuned"
"""The one that `text-pipeline tune` writes."""
DEFAULT_MODEL = "default"
"""The model id of this project's own news classifier."""
DEFAULT_CHUNK_SIZE = 32
"""Texts of a request."""
WINDOW_CHUNK_SIZE = MAX_REQUEST_WINDOWS // MAX_WINDOWS
"""Texts of a request with windows."""
DEFAULT_IN_FLIGHT = 8
"""Requests sent and not yet answered; the server batches them together."""
DEFAULT_TIMEOUT_S = 300.0
"""For one request: 8 requests of 64 long articles take about a minute on two cores."""
DEFAULT_TOLERANCES = {"fp32": 1e-4, "fp16": 0.03, "int8": 0.25}
"""Largest difference of any output to PyTorch.

MiniLM: 1e-6 with fp32 kernels (deep models have more), 0.005 with fp16, 0.23 with int8.
"""
DEFAULT_MIN_AGREEMENT = 0.99
"""Share of texts that get the label that they get in PyTorch."""

# --- model control ------------------------------------------------------------------------------

KEY_VARIABLE = "TEXT_PIPELINE_ADMIN_KEY"
"""The environment variable with what a request to a restricted API must send in KEY_HEADER."""
KEY_HEADER = "admin-key"
