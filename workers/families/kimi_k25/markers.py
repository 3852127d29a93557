"""The tokens that give Kimi-K2.5's prompts and answers their structure, as text.

A turn is TURN role MIDDLE content TURN_END, where TURN is of the speaker's kind. An image is
MEDIA_BEGIN "image" MEDIA_CONTENT MEDIA_PAD MEDIA_END. An answer may think first, between
THINK_BEGIN and THINK_END, and may end in a section of tool calls: each is CALL_BEGIN, the call's
id, CALL_ARGUMENTS, arguments in JSON, CALL_END.
"""

USER_TURN = "<|im_user|>"
ASSISTANT_TURN = "<|im_assistant|>"
SYSTEM_TURN = "<|im_system|>"  # also of tools: their declaration and their results
MIDDLE = "<|im_middle|>"
TURN_END = "<|im_end|>"

MEDIA_BEGIN = "<|media_begin|>"
MEDIA_CONTENT = "<|media_content|>"
MEDIA_PAD = "<|media_pad|>"
MEDIA_END = "<|media_end|>"

CALLS_BEGIN = "<|tool_calls_section_begin|>"
CALLS_END = "<|tool_calls_section_end|>"
CALL_BEGIN = "<|tool_call_begin|>"
CALL_ARGUMENTS = "<|tool_call_argument_begin|>"
CALL_END = "<|tool_call_end|>"

THINK_BEGIN = "<think>"
THINK_END = "</think>"
