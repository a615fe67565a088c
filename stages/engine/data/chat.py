"""Conversations and replies as token ids, by the model's own chat template."""

from collections.abc import Mapping, Sequence

from stages.engine.data.chat_template import ChatTemplate
from stages.engine.data.chat_turns import TurnFinder, Turns, locate_contents
from stages.engine.data.conversation import Authored, Conversation, authored_ids, conversation_ids, tokenise
from stages.engine.data.literal import Place
from stages.engine.data.records import Message, Tool
from stages.engine.data.tokenizer import Tokenizer
from stages.errors import UserError

_MARKER = "⟦reply⟧"


class Chat:
    """Prompts and responses in ids: a prompt is the template's text, a response is a reply and the end of its turn.

    A prompt and its response are tokenised apart, and so are a response and what follows it. The prompt of every turn
    is therefore a prefix of the ids of the conversation that goes on from it; where the template's text has no such
    prefix, that is an error.

    Attributes:
        tokenizer: of the same model.
        template: its chat template.
        end_id: the token that ends a reply; it is part of the response.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Compile the template.

        Raises:
            UserError: the model has no chat template, or a broken one.
        """
        source, origin = tokenizer.chat_template, tokenizer.origin
        if source is None:
            raise UserError(f"{origin}: the model has no chat template; choose an instruction-tuned one")
        self.tokenizer = tokenizer
        self.template = ChatTemplate(source, origin, tokenizer.bos_token, tokenizer.eos_token)
        self.end_id = self._find_end_id()
        ends = [tokenizer.backend.id_to_token(token) for token in sorted(tokenizer.eos_ids)]
        specials = (tokenizer.backend.id_to_token(token) for token in tokenizer.special_ids)
        self._special_texts = frozenset(text for text in specials if text)
        self._turns = TurnFinder(self.template, [end for end in ends if end])

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, generation_prompt: bool) -> str:
        """The conversation as text.

        Args:
            messages: in order.
            tools: that the model may call.
            generation_prompt: whether the text ends where the assistant begins to reply.

        Raises:
            UserError: the template refuses the conversation.
        """
        return self.template.render(messages, tools, generation_prompt=generation_prompt).text

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Ids of the conversation, up to where the assistant begins to reply.

        Raises:
            UserError: the template refuses the conversation, or the prompt of an earlier reply is not a prefix of it.
        """
        turns = self._turns.find(messages, tools, generation_prompt=True)
        self._turns.check_prompts(turns)
        return conversation_ids(turns, self._literal(turns, messages, tools), self.tokenizer)

    def response_ids(self, reply: str) -> list[int]:
        """Ids of a reply with its end token.

        They are those of the reply alone, as from a sampler: prompt and response are never tokenised together.
        """
        return [*self.tokenizer.encode(reply), self.end_id]

    def reply_text(self, response: Sequence[int]) -> str:
        """Text of a response, without special tokens."""
        return self.tokenizer.decode(response)

    def continuation_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Ids of what follows the last reply, up to where the assistant begins to reply again.

        Sampled tokens stay as they are, and only what is new is tokenised: prompt, response and these ids together are
        the prompt of the next turn.

        Args:
            messages: the whole conversation, with a reply in it and new messages after that.
            tools: as in the first prompt.

        Raises:
            UserError: there is no reply, or the new messages change how the template writes what is before them.
        """
        turns = self._turns.find(messages, tools, generation_prompt=True)
        if not turns.turns:
            raise UserError("a conversation without a reply has no continuation; ask for its prompt")
        self._turns.check_prompts(turns)
        self._turns.check_verbatim(turns, messages)
        literal = self._literal(turns, messages, tools)
        return conversation_ids(turns, literal, self.tokenizer, start=turns.turns[-1].after)

    def authored_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Authored:
        """The ids of `conversation` with the replies in it, faster: nothing else is looked for in them.

        Raises:
            UserError: as `conversation`.
        """
        turns = self._turns.find(messages, tools)
        self._turns.check_verbatim(turns, messages)
        literal = self._literal(turns, messages, tools, generation_prompt=False)
        return authored_ids(turns, literal, self.tokenizer)

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Conversation:
        """The whole conversation, with the tokens of each message.

        Raises:
            UserError: the template refuses the conversation, or it is not certain which tokens are the assistant's.
        """
        turns = self._turns.find(messages, tools)
        self._turns.check_verbatim(turns, messages)
        contents = dict(locate_contents(self.template, turns.text, messages, tools))
        self._check_located(contents, messages)
        return tokenise(turns, contents, len(messages), self.tokenizer)

    def _literal(
        self, turns: Turns, messages: Sequence[Message], tools: Sequence[Tool], *, generation_prompt: bool = True
    ) -> list[Place]:
        """Places of the contents in the text, when special tokens are written out in one of them."""
        if not any(self._written_out(message) for message in messages):
            return []
        text = turns.text
        contents = dict(locate_contents(self.template, text, messages, tools, generation_prompt=generation_prompt))
        self._check_located(contents, messages)
        return list(contents.values())

    def _check_located(self, contents: Mapping[int, Place], messages: Sequence[Message]) -> None:
        for index, message in enumerate(messages):
            special = self._written_out(message)
            if special is not None and index not in contents:
                raise UserError(
                    f"{self.tokenizer.origin}: chat template: message {index} ({message.role}): it holds {special!r}, "
                    "which is a special token, and the template does not write the message as it is: it is not "
                    "certain that the model sees words there; take it out"
                )

    def _written_out(self, message: Message) -> str | None:
        """A special token in what somebody other than the model says."""
        if message.role == "assistant":
            return None
        if not any(text in message.content for text in self._special_texts):
            return None  # tokenising it would take longer
        special = (token for token in self.tokenizer.encode(message.content) if token in self.tokenizer.special_ids)
        texts = (self.tokenizer.backend.id_to_token(token) or "" for token in special)
        return next((text for text in texts if text in message.content), None)  # not so where `<unk>` stands for it

    def _find_end_id(self) -> int:
        """The end token that the template writes after a reply, or the tokenizer's own when it writes none."""
        turns = [Message(role="user", content="?"), Message(role="assistant", content=_MARKER)]
        after_reply = self.render(turns, generation_prompt=False).rpartition(_MARKER)[2]
        ends = (token_id for token_id in self.tokenizer.encode(after_reply) if token_id in self.tokenizer.eos_ids)
        return next(ends, self.tokenizer.eos_id)
