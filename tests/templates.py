"""Chat templates with tools and thoughts, of the forms that public checkpoints have.

Everything that decides ids is as there: where turns begin, how calls and results are written, which
thoughts are shown again. The words of instructions are ours.
"""

_QWEN_MACROS = """\
{%- macro show(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- else -%}
    {%- for item in content -%}
      {%- if item.type == 'image' or 'image' in item or 'image_url' in item -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- elif 'text' in item -%}{{- item.text -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
"""
_QWEN_TOOLS = """\
{%- if tools -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if messages[0].role == 'system' -%}{{- show(messages[0].content) + '\\n\\n' -}}{%- endif -%}
  {{- '# Tools\\n\\n<tools>' -}}
  {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
  {{- '\\n</tools>\\n\\nCall them so:\\n<tool_call>\\n{"name": <name>, "arguments": <object>}' -}}
  {{- '\\n</tool_call><|im_end|>\\n' -}}
{%- elif messages[0].role == 'system' -%}
  {{- '<|im_start|>system\\n' + show(messages[0].content) + '<|im_end|>\\n' -}}
{%- endif -%}
"""
_QWEN_CALLS = """\
    {%- for call in message.tool_calls or [] -%}
      {%- if (loop.first and content) or not loop.first -%}{{- '\\n' -}}{%- endif -%}
      {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
      {%- if call.function.arguments is string -%}{{- call.function.arguments -}}
      {%- else -%}{{- call.function.arguments | tojson -}}{%- endif -%}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
"""
_QWEN_RESULTS = """\
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
      {{- '<|im_start|>user' -}}
    {%- endif -%}
    {{- '\\n<tool_response>\\n' + show(message.content) + '\\n</tool_response>' -}}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
      {{- '<|im_end|>\\n' -}}
    {%- endif -%}
"""
_QWEN_USER = """\
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
    {{- '<|im_start|>' + message.role + '\\n' + show(message.content) + '<|im_end|>\\n' -}}
"""

# Qwen3-VL-Instruct's.
QWEN_TOOLS = (
    _QWEN_MACROS
    + _QWEN_TOOLS
    + "{%- for message in messages -%}\n"
    + _QWEN_USER
    + """\
  {%- elif message.role == 'assistant' -%}
    {%- set content = show(message.content) -%}
    {{- '<|im_start|>assistant\\n' + content -}}
"""
    + _QWEN_CALLS
    + _QWEN_RESULTS
    + """\
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
)

# Qwen3-VL-Thinking's: thoughts are shown again behind the last question, the prompt opens one.
QWEN_THINKING = (
    _QWEN_MACROS
    + _QWEN_TOOLS
    + """\
{%- set last = namespace(question=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}{%- set last.question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
"""
    + _QWEN_USER
    + """\
  {%- elif message.role == 'assistant' -%}
    {%- set content = show(message.content) -%}
    {%- set thought = '' -%}
    {%- if message.reasoning_content is string -%}
      {%- set thought = message.reasoning_content -%}
    {%- elif '</think>' in content -%}
      {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] -%}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
    {%- endif -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if loop.index0 > last.question and thought -%}
      {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') -}}
    {%- else -%}{{- content -}}{%- endif -%}
"""
    + _QWEN_CALLS
    + _QWEN_RESULTS
    + """\
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}
"""
)

# Of the form that Qwen3-Coder and Qwen3.5 have: calls are tags, one parameter after another.
QWEN_XML = (
    QWEN_TOOLS[: QWEN_TOOLS.index(_QWEN_CALLS)].replace(
        '<tool_call>\\n{"name": <name>, "arguments": <object>}',
        "<tool_call>\\n<function=name>\\n<parameter=key>\\nvalue\\n</parameter>\\n</function>",
    )
    + """\
    {%- for call in message.tool_calls or [] -%}
      {%- if (loop.first and content | trim) -%}{{- '\\n\\n' -}}
      {%- elif not loop.first -%}{{- '\\n' -}}{%- endif -%}
      {{- '<tool_call>\\n<function=' + call.function.name + '>\\n' -}}
      {%- for name, value in call.function.arguments | items -%}
        {{- '<parameter=' + name + '>\\n' -}}
        {%- if value is mapping or (value is sequence and value is not string) -%}
          {{- value | tojson | safe -}}
        {%- else -%}{{- value | string -}}{%- endif -%}
        {{- '\\n</parameter>\\n' -}}
      {%- endfor -%}
      {{- '</function>\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
"""
    + QWEN_TOOLS[QWEN_TOOLS.index(_QWEN_RESULTS) :]
)

# Kimi-K2.5's.
KIMI_TOOLS = """\
{%- macro show(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content is not none -%}
    {%- for part in content -%}
      {%- if part.type == 'image' -%}
        {{- '<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\\n' -}}
      {%- else -%}{{- part.text -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro open(message) -%}
  {%- if message.role == 'user' -%}<|im_user|>
  {%- elif message.role == 'assistant' -%}<|im_assistant|>
  {%- else -%}<|im_system|>{%- endif -%}
  {{- message.get('name') or message.role -}}<|im_middle|>
{%- endmacro -%}
{%- macro calls(message) -%}
  <|tool_calls_section_begin|>
  {%- for call in message.tool_calls -%}
    <|tool_call_begin|>{{- call.id -}}<|tool_call_argument_begin|>
    {%- if call.function.arguments is string -%}{{- call.function.arguments -}}
    {%- else -%}{{- call.function.arguments | tojson -}}{%- endif -%}
    <|tool_call_end|>
  {%- endfor -%}
  <|tool_calls_section_end|>
{%- endmacro -%}
{%- set answered = namespace(last=-1) -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' and not message.get('tool_calls') -%}
    {%- set answered.last = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- if tools -%}
  {{- '<|im_system|>tool_declare<|im_middle|>' -}}
  {%- if tools_ts_str -%}{{- tools_ts_str -}}
  {%- else -%}{{- tools | tojson(separators=(',', ':')) -}}{%- endif -%}
  <|im_end|>
{%- endif -%}
{%- for message in messages -%}
  {{- open(message) -}}
  {%- if message.role == 'assistant' -%}
    {%- set shown = message.get('reasoning_content', '') if loop.index0 > answered.last else '' -%}
    {{- '<think>' + shown + '</think>' -}}
    {{- show(message.content) -}}
    {%- if message.get('tool_calls') -%}{{- calls(message) -}}{%- endif -%}
  {%- elif message.role == 'tool' -%}
    {{- '## Return of ' + message.tool_call_id + '\\n' -}}{{- show(message.content) -}}
  {%- else -%}{{- show(message.content) -}}{%- endif -%}
  <|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_assistant|>assistant<|im_middle|>' -}}
  {{- '<think></think>' if thinking is defined and not thinking else '<think>' -}}
{%- endif -%}
"""
