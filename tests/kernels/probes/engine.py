"""vLLM's own engine serves the whole Flint model on a CUDA GPU: its scheduler, its caches, its sampler.

Arguments: how many layers; ``eager`` or ``graphs``. The weights are random, in files as a checkpoint's.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
# The sampler is not what is looked at, and FlashInfer need not be there.
os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"

from vllm import LLM, SamplingParams

from tests.kernels import whole
from tests.kernels.probes import answer

model = whole.full(int(sys.argv[1]))
checkpoint = whole.Checkpoint(model, torch.device("cuda"))
generator = torch.Generator().manual_seed(0)
prompts = [torch.randint(model.vocab_size, (n,), generator=generator).tolist() for n in (1300, 700, 40, 5, 1)]

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    names, part, size = {}, {}, 0
    for name, tensor in checkpoint:
        part[name] = tensor.cpu()
        size += tensor.nbytes
        if size > 4 << 30 or name == "lm_head.weight":
            file = f"model-{len(set(names.values())):05}.safetensors"
            save_file(part, Path(folder, file))
            names |= dict.fromkeys(part, file)
            part, size = {}, 0
    Path(folder, "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    served = LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=4096,
        gpu_memory_utilization=0.6,
        enforce_eager=sys.argv[2] == "eager",
        attention_backend="TRITON_ATTN",
        seed=0,
    )
    made = served.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, logprobs=0, detokenize=False),
        use_tqdm=False,
    )
outputs = [each.outputs[0] for each in made]
del served
gc.collect()
torch.cuda.empty_cache()

words = same = 0
worst = apart = 0.0
for prompt, output in zip(prompts, outputs, strict=True):
    tokens = torch.tensor([*prompt, *output.token_ids[:-1]], device="cuda")
    wanted = whole.logits(checkpoint, tokens, [torch.arange(len(tokens), device="cuda")])[len(prompt) - 1 :].double()
    said = torch.tensor(output.token_ids, device="cuda")
    shares = wanted.log_softmax(-1)
    mine = shares.gather(-1, said[:, None])[:, 0]
    words += len(said)
    same += int((wanted.argmax(-1) == said).sum())
    # By how much another word was likelier to the reference, and how far the probabilities lie apart.
    worst = max(worst, float((shares.max(-1).values - mine).max()))
    given = torch.tensor([row[token].logprob for row, token in zip(output.logprobs, output.token_ids, strict=True)])
    apart = max(apart, float((given.double() - mine.cpu()).abs().max()))
answer(
    {
        "mode": sys.argv[2],
        "layers": model.num_hidden_layers,
        "words": words,
        "same word": same,
        "behind": worst,
        "logprobs apart": apart,
    }
)
