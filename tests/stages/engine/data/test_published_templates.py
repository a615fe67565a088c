"""Chat templates of some seventy published models: exact spans, or a refusal that says why."""

import dataclasses
import re
from pathlib import Path

import pytest
import tokenizers
from vocabularies import chat_templates, published_tokenizer

from stages.engine.data.chat import Chat
from stages.engine.data.records import Message, Tool, ToolCall
from stages.engine.data.tokenizer import Tokenizer, load_tokenizer
from stages.engine.data.tool_calls.catalog import find_format
from stages.engine.data.tool_calls.turn import ToolTurn
from stages.errors import UserError

pytestmark = pytest.mark.slow

ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|END_OF_TURN_TOKEN|>", "[e~["),
    *("<｜end▁of▁sentence｜>", "<|return|>", "<|call|>", "<|end_of_text|>", "<|endoftext|>", "<seed:eos>", "<|eot|>"),
    *(
        "<|message_sep|>",
        "<|end_of_msg|>",
        "<end_of_sentence>",
        "<sep>",
        "<|role_end|>",
        "</assistant>",
        "<SPECIAL_12>",
    ),
)
CALL = ToolCall(name="add_up", arguments={"a": 1}, id="123456789")
TOOLS = (
    Tool(
        name="add_up",
        description="Adds.",
        parameters={"type": "object", "properties": {"a": {"type": "number", "description": "x"}}, "required": ["a"]},
    ),
)
SINGLE = [Message(role="user", content="question-one"), Message(role="assistant", content="reply-one")]
SEVERAL = [
    Message(role="system", content="system-one"),
    *SINGLE,
    Message(role="user", content="question-two"),
    Message(role="assistant", content="reply-two"),
]
CALLING = [
    SINGLE[0],
    Message(role="assistant", content="", tool_calls=(CALL,)),
    Message(role="tool", content="result-one", tool_call_id="123456789", name="add_up"),
    Message(role="assistant", content="reply-two"),
]
REASONS = {
    "date": "writes today's date",
    "prompt": "the prompt is not a prefix of its continuation",
    "end": "the template writes no end token after it",
    "changes": "when others follow|for the reply",
    "no calls": "the template does not write the call",
    "refused": "must alternate|not supported|is undefined|is unsafe|not JSON serializable|can only concatenate",
}
# Of one reply, of several, and of a call with its result.
OUTCOMES = {
    "Apertus-8B-Instruct": "date",
    "Apriel-1.6-15b-Thinker-fixed": "prompt, prompt, prompt",
    "Bielik-11B-v3.0-Instruct": "exact, exact, exact",
    "ByteDance-Seed-OSS": "exact, exact, exact",
    "Cohere2MoE": "prompt, prompt, prompt",
    "CohereForAI-c4ai-command-r-plus-tool_use": "prompt, prompt, prompt",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "prompt, prompt, prompt",
    "GLM-4.6": "end, end, end",
    "GLM-4.7-Flash": "prompt, prompt, prompt",
    "GigaChat3-10B-A1.8B": "exact, exact, no calls",
    "GigaChat3.1-10B-A1.8B": "exact, exact, exact",
    "HuggingFaceTB-SmolLM3-3B": "exact, exact, no calls",
    "Kimi-K2-Instruct": "exact, exact, refused",
    "Kimi-K2-Thinking": "more, more, refused",
    "Kimi-K3": "more, more, more",
    "LFM2-8B-A1B": "exact, exact, no calls",
    "LFM2.5-8B-A1B": "exact, exact, exact",
    "LFM2.5-Instruct": "exact, exact, no calls",
    "MiMo-VL": "exact, exact, exact",
    "MiniMax-M1": "exact, exact, exact",
    "MiniMax-M2": "prompt, prompt, prompt",
    "MiniMax-M3": "more, more, more",
    "Mistral-Small-3.2-24B-Instruct-2506": "date",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "prompt, prompt, prompt",
    "NVIDIA-Nemotron-Nano-v2": "more, prompt, prompt",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "exact, exact, prompt",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "exact, exact, prompt",
    "Qwen-QwQ-32B": "prompt, prompt, prompt",
    "Qwen-Qwen2.5-7B-Instruct": "exact, exact, exact",
    "Qwen-Qwen3-0.6B": "more, more, more",
    "Qwen3-Coder": "exact, exact, exact",
    "Qwen3.5-4B": "more, prompt, more",
    "Reka-Edge": "more, more, more",
    "Spark2.5": "prompt, prompt, prompt",
    "StepFun3.5-Flash": "more, prompt, more",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "prompt, prompt, prompt",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "prompt, prompt, prompt",
    "deepseek-ai-DeepSeek-V3.1": "exact, exact, exact",
    "deepseek-ai-DeepSeek-V3.2": "prompt, prompt, prompt",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "exact, exact, exact",
    "deepseek-ai-DeepSeek-V4": "exact, exact, exact",
    "fireworks-ai-llama-3-firefunction-v2": "refused",
    "google-gemma-2-2b-it": "exact, refused, refused",
    "google-gemma-4-31B-it-interleaved": "prompt, prompt, prompt",
    "google-gemma-4-31B-it": "prompt, prompt, prompt",
    "ibm-granite-granite-3.3-2B-Instruct": "date",
    "ibm-granite-granite-4.0": "exact, exact, exact",
    "ibm-granite-granite-4.1": "exact, exact, exact",
    "inclusionai-ling-3.0-flash": "more, more, more",
    "llama-cpp-deepseek-r1": "prompt, prompt, refused",
    "llama-cpp-rwkv-world": "end, end, end",
    "meetkai-functionary-medium-v3.1": "exact, exact, exact",
    "meetkai-functionary-medium-v3.2": "more, more, refused",
    "meta-llama-Llama-3.1-8B-Instruct": "exact, exact, exact",
    "meta-llama-Llama-3.2-3B-Instruct": "exact, exact, exact",
    "meta-llama-Llama-3.3-70B-Instruct": "exact, exact, exact",
    "microsoft-Phi-3.5-mini-instruct": "exact, exact, no calls",
    "mistralai-Ministral-3-14B-Reasoning-2512": "exact, exact, exact",
    "mistralai-Mistral-Nemo-Instruct-2407": "exact, prompt, exact",
    "moonshotai-Kimi-K2": "exact, exact, exact",
    "muse-glimmer": "more, more, more",
    "openai-gpt-oss-120b": "date",
    "openbmb-MiniCPM5-1B": "exact, exact, exact",
    "poolside-Laguna-S-2.1": "more, more, more",
    "poolside-Laguna-XS-2.1": "more, more, more",
    "poolside-Laguna-XS.2": "more, more, more",
    "tencent-Hy3": "end, end, end",
    "unsloth-Apriel-1.5": "more, more, changes",
    "unsloth-mistral-Devstral-Small-2507": "exact, exact, exact",
    "upstage-Solar-Open-100B": "date",
}


@pytest.fixture
def tokenizer(folder: Path) -> Tokenizer:
    """Bytes, and the end tokens of all models."""
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_truncation()
    backend.add_special_tokens([tokenizers.AddedToken(end, normalized=False, special=True) for end in ENDS])
    ends = frozenset(backend.token_to_id(end) for end in (*ENDS, "</s>"))
    return dataclasses.replace(load_tokenizer(folder), backend=backend, eos_ids=ends)


def outcome(chat: Chat, messages: list[Message], tools: tuple[Tool, ...] = ()) -> str:
    """`exact`, `more` where the template adds words of its own to a reply, or why it refuses."""
    try:
        conversation = chat.conversation(messages, tools)
    except UserError as error:
        return next((reason for reason, words in REASONS.items() if re.search(words, str(error))), str(error))
    whole = chat.tokenizer.decode(conversation.ids, skip_special=False)
    assert whole == chat.render(messages, tools, generation_prompt=False)
    others = whole
    added = False
    for message, span in zip(messages, conversation.spans, strict=True):
        if message.role != "assistant":
            continue
        assert span is not None
        assert conversation.assistant_mask[span.start : span.stop].all()
        own = chat.tokenizer.decode(conversation.ids[span.start : span.stop], skip_special=False)
        others = others.replace(own, "", 1)
        (end,) = [end for end in (*ENDS, "</s>") if own.endswith(end)]
        said = own.removesuffix(end)
        assert not re.search("|".join(map(re.escape, (*ENDS, "</s>"))), said)
        assert re.findall(r"(?:system|question|reply|result)-\w+", said) == (
            [message.content] if message.content else []
        )
        assert (CALL.name in said) == bool(message.tool_calls)
        added |= not message.tool_calls and said != message.content
    assert conversation.assistant_mask.sum() == len(conversation.ids) - len(chat.tokenizer.encode(others))
    assert "reply-" not in others
    return "more" if added else "exact"


def test_every_published_template_gives_exact_spans_or_says_why_not(tokenizer: Tokenizer) -> None:
    found: dict[str, str] = {}
    for path in sorted(chat_templates().glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        try:
            chat = Chat(dataclasses.replace(tokenizer, chat_template=source))
        except UserError as error:
            found[path.stem] = next(reason for reason, words in REASONS.items() if re.search(words, str(error)))
            continue
        cases = [outcome(chat, SINGLE), outcome(chat, SEVERAL), outcome(chat, CALLING, TOOLS)]
        found[path.stem] = ", ".join(cases)
    assert found == OUTCOMES


def test_calls_that_a_template_writes_are_read_by_the_format_that_it_shows(tokenizer: Tokenizer) -> None:
    formats: dict[str, list[str]] = {}
    for path in sorted(chat_templates().glob("*.jinja")):
        try:
            chat = Chat(dataclasses.replace(tokenizer, chat_template=path.read_text(encoding="utf-8")))
            form = find_format(chat.template)
            span = chat.conversation(CALLING, TOOLS).spans[1]
        except UserError:
            continue
        conversation = chat.conversation(CALLING, TOOLS)
        assert span is not None
        own = chat.tokenizer.decode(conversation.ids[span.start : span.stop - 1], skip_special=False)
        turn = form.parse(own)
        assert isinstance(turn, ToolTurn), path.stem
        assert turn.calls == (CALL.model_copy(update={"id": None}),), path.stem
        assert turn.content == "", path.stem
        formats.setdefault(form.name, []).append(path.stem)
    assert formats == {
        "llama": [f"meta-llama-Llama-{size}-Instruct" for size in ("3.1-8B", "3.2-3B", "3.3-70B")],
        "qwen": [
            *("Bielik-11B-v3.0-Instruct", "MiMo-VL", "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B"),
            *("ibm-granite-granite-4.0", "ibm-granite-granite-4.1"),
        ],
    }


@pytest.mark.parametrize(
    ("name", "end"), [("qwen3", "<|im_end|>"), ("gemma3", "<end_of_turn>"), ("llama3", "<|eot_id|>")]
)
def test_prompt_response_and_continuation_join_exactly_with_real_vocabularies(name: str, end: str) -> None:
    tokenizer = load_tokenizer(published_tokenizer(name))
    end_id = tokenizer.backend.token_to_id(end)
    chat = Chat(dataclasses.replace(tokenizer, eos_ids=frozenset({end_id})))
    question, more = Message(role="user", content="2+2?"), Message(role="user", content="é")
    reply = Message(role="assistant", content="4")
    ids = chat.prompt_ids([question])
    ids += [*chat.response_ids("4"), *chat.continuation_ids([question, reply, more])]
    assert ids == chat.prompt_ids([question, reply, more])
    assert tokenizer.decode(ids, skip_special=False) == chat.render([question, reply, more], generation_prompt=True)
