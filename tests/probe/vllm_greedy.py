"""Run by the interpreter of .venv-vllm: `vllm_greedy.py MODEL NUM PROMPTS` prints the likeliest NUM tokens after each.

Prompts are JSON lists of token ids, and so is what is printed, in the last line.
"""

import importlib
import json
import sys


def main() -> None:
    model, num, prompts = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    vllm = importlib.import_module("vllm")
    engine = vllm.LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=128, max_num_seqs=4)
    drawn = vllm.SamplingParams(temperature=0, max_tokens=num, ignore_eos=True)
    answers = engine.generate([{"prompt_token_ids": ids} for ids in prompts], drawn, use_tqdm=False)
    sys.stdout.write(json.dumps([list(answer.outputs[0].token_ids) for answer in answers]) + "\n")


if __name__ == "__main__":
    main()
