"""How the byte-level tokenizers of known models cut text before they merge, by the name that GGUF files give it.

A name says nothing by itself: what it stands for is published in the `tokenizer.json` of the models that use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True)
class Split:
    """The cuts.

    Attributes:
        patterns: each cuts what those before it left whole; what it finds becomes a word, and what lies between too.
        normalize: text is brought to Unicode's composed form (NFC) first.
        whole_words: a word that is a token is never built from merges.
        starts_with_bos: sequences begin with the start token unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    normalize: bool = False
    whole_words: bool = False
    starts_with_bos: bool = False

    def normalizer(self) -> normalizers.Normalizer | None:
        """What is done to text first."""
        return normalizers.NFC() if self.normalize else None

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """The cuts, and bytes as printable letters."""
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


def _words(digits: str) -> str:
    """Contractions, letters with one leading mark, digits, runs of other marks, spaces."""
    spaces = r"\s*[\r\n]+|\s+(?!\S)|\s+"
    return (
        rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{spaces}"
    )


_EAST_ASIAN = "[一-龥ࠀ-一가-\ud7ff]+"
_MARKS = "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"
_CASED_LETTERS = (
    r"[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙ"
    r"ὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-"
    r"ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
"""Of alphabets with upper and lower case, in the version of Unicode that DeepSeek used."""

_LLAMA3 = Split((_words(r"\p{N}{1,3}"),), whole_words=True, starts_with_bos=True)

SPLITS: Mapping[str, Split] = {
    "gpt-2": Split((_GPT2,)),
    "smollm": Split((_DIGIT, _GPT2)),
    "starcoder": Split((_DIGIT, _GPT2)),
    "refact": Split((_DIGIT, _GPT2)),
    "command-r": Split((_DIGIT, _GPT2), normalize=True),
    "mpt": Split((_GPT2,), normalize=True),
    "falcon": Split((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9]{3}")),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": Split((_words(r"\p{N}"),), normalize=True),
    "deepseek-llm": Split((r"[\r\n]", r"\s?" + _CASED_LETTERS, _MARKS, r"\s+$", _EAST_ASIAN, _DIGIT)),
    "deepseek-coder": Split((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, _DIGIT)),
}
"""By `tokenizer.ggml.pre`."""
