"""No test depends on what the developer's shell sets for Hugging Face, as HF_HUB_OFFLINE=1."""

import os

for name in [name for name in os.environ if name.startswith("HF_")]:
    del os.environ[name]  # before huggingface_hub is imported, which reads them once
