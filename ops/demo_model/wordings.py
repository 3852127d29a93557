"""The wordings that training uses: patterns such as "[What|Which] color is the <thing>?".

A bracket is a choice, `<name>` is a slot. Each pattern stands for many sentences; decorations and
careless typing are added on top. The wordings kept for evaluation are in `held_out.py`.
"""

import re
from collections.abc import Iterator, Mapping
from random import Random

COLOR = "[color|color|colour]"
IMAGE = "[image|picture|photo|image|picture|drawing]"
HERE = f"[| in the {IMAGE}| in this {IMAGE}| here| shown]"
TELL = (
    "[Can|Could|Would|Will] you [please |kindly |][tell me|say|name|figure out]"
)
WANT = (
    "[I want to know|I would like to know|I'd like to know|Please tell me|Tell me|Do you know|"
    "Let me know|Say|I need to know|Just tell me]"
)

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "colour": (
        f"[What|Which] {COLOR} is [the <thing>|the <thing>|that <thing>|this <thing>]{HERE}?",
        f"[What is|What's|whats|Tell me|Name|State|Give me] the {COLOR} of [the|this|that] <thing>{HERE}.",
        f"[What|Which] {COLOR} [does the <thing> have|has the <thing>]{HERE}?",
        f"<Thing> {COLOR}?",
        f"{COLOR} of the <thing>?",
        f"[{TELL}|{WANT}] [what|which] {COLOR} the <thing>{HERE} [is|has].",
        f"[{TELL}|{WANT}] the {COLOR} of [the|this] <thing>{HERE}.",
        f"The <thing>{HERE} [is|has] [what|which] {COLOR}?",
        f"[In|Of] [what|which] {COLOR} is the <thing>{HERE} [drawn|painted|shown|filled]?",
        f"[What|Which] {COLOR} [was used for|is used for|did they use for] the <thing>?",
        f"Look at the <thing>. [What|Which] {COLOR} is it?",
        f"There is a <thing>{HERE}. [What|Which] {COLOR} does it have?",
        f"[Name|Identify|Report|Return|Output|Determine] the <thing>'s {COLOR}.",
        f"The {COLOR} of the <thing> is",
        f"How would you [name|call|describe] the {COLOR} of the <thing>?",
        "Is the <thing> red, green, blue or [yellow|another color]?",
    ),
    "colour_lone": (
        f"[What|Which] {COLOR} is [it|this|that|shown|this thing|the thing|the figure]{HERE}?",
        f"[What|Which] {COLOR} [do you see|can you see|is in the {IMAGE}|does it have]?",
        f"[{TELL}|{WANT}] [what|which] {COLOR} [it is|this is|you see|it has].",
        f"{COLOR}?",
        f"[Name|Say|Give|Identify|State|Report] the {COLOR}[|, please| you see| of it].",
        f"[What is|What's|Tell me] [the|its] {COLOR}?",
    ),
    "shape_lone": (
        f"[What|Which] [shape|form|kind of shape|type of shape|sort of shape] is [this|it|that|shown|the object|the thing|the figure|drawn]{HERE}?",
        f"[What|Which] [shape|form|kind of shape] [do you see|can you see|is there|is visible]{HERE}?",
        f"[What|Which] [shape|form] [does it have|does the object have|has the object|has it]{HERE}?",
        f"[What is|What's|Tell me|Name|Identify|Give me|State|Recognize] the [shape|form|geometric shape|figure] [of the object|of the thing|of this object|shown|you see|]{HERE}.",
        f"[{TELL}|{WANT}] [what|which] [shape|form|kind of shape|figure] [it is|this is|the object is|you see|is shown|is drawn].",
        f"[{TELL}|{WANT}] the [shape|form] of [the|this] [object|thing|figure].",
        "Is it a circle, a square, a triangle or a star?",
        "Is this a [circle|square|star|triangle] or a [circle|square|star|triangle] or something else?",
        "[Shape|Form|Shape, please|Object shape]?",
        "[What|How] [is|do you call] [this|the] [shape|figure|geometric figure] [called|named]?",
        f"[Name|Identify|Recognize|Classify|Determine|State] [the shape|this shape|the figure|the object's shape|its shape]{HERE}.",
        f"[What|Which] geometric [shape|figure|form] is [this|it|shown|in the {IMAGE}]?",
        "The object has [what|which] shape?",
        "The shape is",
        "What is the name of [this|the] [shape|figure]?",
    ),
    "shape": (
        f"[What|Which] [shape|form|kind of shape] is [<adjective>|the <adjective> one|the <adjective> object|the <adjective> thing|the <adjective> figure]{HERE}?",
        f"[What is|What's|Tell me|Name|Identify|Give me|State] the [shape|form] of the <adjective> [object|thing|one|figure]{HERE}.",
        f"[What|Which] [shape|form] [does the <adjective> [object|thing|one] have|has the <adjective> [object|thing|one]]{HERE}?",
        f"[{TELL}|{WANT}] [what|which] [shape|form] the <adjective> [object|thing|one|figure] [is|has]{HERE}.",
        f"[{TELL}|{WANT}] the shape of the <adjective> [object|thing|one|figure].",
        f"The <adjective> [object|thing|one] [has|is] [what|which] shape?",
        f"[What is|What's|Name|Identify] the <adjective> [shape|object|thing|figure|one]{HERE}?",
        f"[What|Which] <adjective> [shape|object|thing|figure] [is there|do you see|can you see|is shown]{HERE}?",
        "[What|Which] is <adjective>?",
        "Shape of the <adjective> [object|thing|one]?",
        "Look at the <adjective> [object|one]. [What|Which] shape is it?",
    ),
    "position": (
        f"[Where is|Where's|wheres] [the|that|this] <thing>[| located| placed| positioned| drawn| sitting]{HERE}?",
        f"[What is|What's|Tell me|Give me|State|Name|Describe] the [position|location|place] of the <thing>{HERE}.",
        f"[In which|In what|Which|What] [part|area|region|section|corner or side|place|spot] of the {IMAGE} [is the <thing>|has the <thing>|contains the <thing>|holds the <thing>|shows the <thing>][| in]?",
        f"[{TELL}|{WANT}] where [the <thing> is|I can find the <thing>|to find the <thing>|to look for the <thing>]{HERE}.",
        f"Where [do|can|could|would] [you|I|we|one] [see|find|spot|locate] the <thing>{HERE}?",
        f"[Locate|Find|Localize|Spot|Point out|Point to] the <thing>{HERE}.",
        f"[Position|Location] of the <thing>?",
        f"[At|In|On] [which|what] [position|place|location|side|spot] is the <thing>{HERE}?",
        f"<Thing> [position|location]?",
        f"The <thing> is [located|placed|] where{HERE}?",
        f"[Which|What] [position|location] [does the <thing> have|has the <thing>]?",
        f"Is the <thing> [on the left, on the right or in the middle|at the top, at the bottom or in the centre|left, right, top or bottom]?",
        f"Where [in|on|within] the {IMAGE} [is the <thing>|does the <thing> sit|does the <thing> appear|is the <thing> located|do you find the <thing>]?",
        "Look for the <thing>. Where is it?",
        "The <thing> is in the",
    ),
    "count": (
        f"How many <things> [are there|do you see|can you see|can you count|are visible|are shown|exist|are drawn|are present|does it have|are]{HERE}?",
        f"How many <things> [are in|does|are shown in|can be seen in|appear in] [the|this] {IMAGE}[| show| contain]?",
        f"[Count|Count up|Please count|Count all] [|the |all the |all ]<things>{HERE}.",
        f"[What is|What's|Tell me|Give me|State|Say|Report|Find] the [number|count|total number|amount|quantity] of <things>{HERE}.",
        f"[{TELL}|{WANT}] how many <things> [there are|you see|you can see|are there|it has]{HERE}.",
        f"[{TELL}|{WANT}] the number of <things>{HERE}.",
        f"[Number|Count|Amount] of <things>?",
        f"[Can|Could|Will] you count [the|all|all the] <things>{HERE}?",
        "How many <things>[?| please?]",
        f"There are how many <things>{HERE}?",
        f"In [the|this] {IMAGE}, how many <things> [are there|do you see]?",
        "The number of <things> is",
        f"[Look|See] how many <things> there are.",
    ),
    "count_bare": (
        "How many?",
        f"How many [are there|do you see|can you count|are shown|are in the {IMAGE}]?",
        "[Count.|Count them.|Count everything.|Count what you see.]",
    ),
    "presence": (
        f"[Is there|Is there|Do you see|Can you see|Can you find|Can you spot|Do you find|Do you notice] <a thing>{HERE}?",
        f"[Does|Would] [the|this] {IMAGE} [contain|show|have|include|display|depict] <a thing>?",
        f"Is <a thing> [in the {IMAGE}|in this {IMAGE}|shown|visible|present|there|drawn|here]?",
        f"[{TELL}|{WANT}] [if|whether] [there is <a thing>|you see <a thing>|it shows <a thing>|the {IMAGE} has <a thing>|<a thing> is there].",
        "Does it [show|have|contain|include] <a thing>?",
        f"Is there any <thing>{HERE}?",
        "Any <thing>[| here| there| in it]?",
        f"Can <a thing> be [seen|found]{HERE}?",
        f"Check [if|whether] there is <a thing>{HERE}.",
        f"[Yes or no:|True or false:|yes/no:] [is there <a thing>|there is <a thing>|the {IMAGE} shows <a thing>]?",
        f"There is <a thing>{HERE}, [right|correct|is there not|isn't there|yes or no]?",
        f"Do we have <a thing>{HERE}?",
        f"Am I [looking at|seeing] <a thing>?",
    ),
    "presence_lone": ("Is [it|this|that|the object|the shape] <a thing>?", "Is the object [shown|here] <a thing>?"),
    "describe": (
        f"[What is|What's|whats] [in|on|shown in|shown on|depicted in|visible in] [the|this|that|my] {IMAGE}?",
        f"What [do|can] you see{HERE}?",
        "What is [shown|this|shown here|here|visible|visible here|drawn here|there|depicted]?",
        f"What [does|do] [the|this] {IMAGE} [show|contain|depict|display|have in it]?",
        f"[Describe|Please describe|Describe briefly|Caption|Please caption|Summarize|Briefly describe] [the|this|my|that] {IMAGE}[| in one sentence| in detail| briefly| for me| in a few words| in words|, please].",
        "[Describe|Please describe|Tell me|Say|Explain|Report|Name] [what you see|what is shown|what is there|what is visible|everything you see|the scene|what you can see].",
        f"[Can|Could|Would|Will] you [please |][describe|caption] [the|this|my] {IMAGE}[| for me| in one sentence]?",
        f"[Can|Could|Would|Will] you [please |][tell me|say|describe] what [is in the {IMAGE}|is shown|you see|the {IMAGE} shows|this {IMAGE} contains]?",
        f"[Give|Write|Provide|Make|Generate|Give me] [a|a short|a brief|a one sentence|an accurate] [description|caption|summary][| of the {IMAGE}| of this {IMAGE}| of what you see].",
        f"[{WANT}] what [is in the {IMAGE}|is shown here|you see|the {IMAGE} shows].",
        f"[Identify|Name|List] the [object|objects|contents|shapes][| in the {IMAGE}| you see| shown].",
        "[Description|Caption|Description please|Image description]?",
        f"What [objects|things|object|shapes] [are there|do you see|is shown|are shown|can you see|are in the {IMAGE}]?",
        f"[Look at|Have a look at|See|Check|Here is] [the|this|my] {IMAGE}. What [do you see|is it|is in it|does it show|is there]?",
        "[Describe|Explain] [it|this|that].",
        f"This {IMAGE} shows",
    ),
    "number": (
        f"[What|Which] [number|number|digits|digit|numeral] [is|do you see|can you see|is shown|is written|is this|is it|is displayed|is printed|stands]{HERE}?",
        f"[What is|What's|whats|Tell me|Name|State|Give me|Say] the [number|digit|number shown|number you see|value|written number|digits]{HERE}.",
        f"[Read|Read out|Please read|Read aloud|Transcribe|Recognize|Identify|Type|Write down] [the|this] [number|digit|text|digits|numeral|writing]{HERE}.",
        f"[{TELL}|{WANT}] [what|which] [number|digit] [it is|this is|is shown|you see|is written|is in the {IMAGE}].",
        f"[{TELL}|{WANT}] the [number|digit|digits|written number]{HERE}.",
        f"[Can|Could|Will] you [please |][read|recognize|make out] [the|this] [number|digit|text]{HERE}?",
        "What does it [say|read]?",
        f"What does [the|this] {IMAGE} say?",
        "[Number|Digit|Which number|What number|The number|Digits]?",
        f"[What|Which] number [does the {IMAGE} show|does it show|appears|appears here|has been written]?",
        f"What [is|has been] written [here|there|in the {IMAGE}|on it]?",
        "[OCR|Run OCR|Do OCR|Extract the number|Extract the text|OCR this].",
        "The number is",
    ),
    "describe_nth": (
        f"[What is|What's|whats] [in|shown in|on|depicted in|visible in] <nth image>?",
        "What [does|do] <nth image> [show|contain|depict|display|have]?",
        "What [do|can] you see in <nth image>?",
        "[Describe|Please describe|Caption|Describe only|Just describe] <nth image>[| in one sentence| briefly|, please| only| for me].",
        f"[{TELL}|{WANT}] what [is in <nth image>|<nth image> shows|you see in <nth image>].",
        "[Can|Could|Would] you [please |]describe <nth image>?",
        "[Give|Write] [a|a short] [description|caption] of <nth image>.",
        "[In|On] <nth image>, what [is there|do you see|is shown]?",
        "And <nth image>?",
        "Look at <nth image>. What does it show?",
    ),
    "colour_nth": (
        f"[What|Which] {COLOR} is the [object|shape|thing|figure] [in|of|on|shown in] <nth image>?",
        f"[What is|What's|Tell me|Name] the {COLOR} of the [object|shape|thing] in <nth image>.",
        f"[What|Which] {COLOR} does the [object|shape|thing] in <nth image> have?",
        f"[In|On] <nth image>, [what|which] {COLOR} is the [object|shape|thing]?",
        f"[{TELL}|{WANT}] the {COLOR} of the [object|shape|thing] in <nth image>.",
        f"[{TELL}|{WANT}] [what|which] {COLOR} the [object|shape] in <nth image> is.",
    ),
    "shape_nth": (
        "[What|Which] [shape|form] is [in|shown in|on|drawn in] <nth image>?",
        "[What|Which] [shape|form] [is the object in <nth image>|does the object in <nth image> have|do you see in <nth image>]?",
        "[What is|What's|Tell me|Name|Identify] the [shape|form] [in|of the object in] <nth image>.",
        "[In|On] <nth image>, [what|which] shape [is there|do you see|is shown]?",
        f"[{TELL}|{WANT}] [what|which] shape [is in <nth image>|the object in <nth image> is].",
    ),
    "number_nth": (
        "[What|Which] [number|digit] is [in|shown in|on|written in] <nth image>?",
        "[What is|What's|Tell me|Read|Name] the [number|digit] in <nth image>.",
        "[What|Which] number [do you see in <nth image>|does <nth image> show]?",
        "[In|On] <nth image>, [what|which] number [is there|do you see|is shown]?",
        f"[{TELL}|{WANT}] the number in <nth image>.",
    ),
    "presence_nth": (
        f"[Is there|Do you see|Can you see|Can you find] <a thing> in <nth image>?",
        "[Does|Would] <nth image> [contain|show|have|include] <a thing>?",
        "Is <a thing> [in|shown in|visible in] <nth image>?",
        "[In|On] <nth image>, is there <a thing>?",
        f"[{TELL}|{WANT}] [if|whether] [there is <a thing> in <nth image>|<nth image> has <a thing>].",
    ),
    "which": (
        f"[Which|Which|What] [{IMAGE}|one|of the images|of the two images|of the pictures|one of the two|of these images|of them|of the two] [has|shows|contains|includes|depicts|displays|has got] [the|a|the] <thing>?",
        f"[In|On] which [{IMAGE}|of the images|one|of the two] [is|do you see|can you see|can I find|is there] [the|a|the] <thing>?",
        f"[Is|Do you see|Can I find] the <thing> in the first or [in |]the second [image|one|picture]?",
        f"[Which|What] {IMAGE} is the <thing> in?",
        f"Where is the <thing>, in the first [image|] or [in |]the second [image|]?",
        f"[{TELL}|{WANT}] [which|in which] [image|picture|one|of the images] [has|shows|contains] the <thing>.",
        f"The <thing> is in which [{IMAGE}|one]?",
        "[First or second|First image or second image|Image 1 or image 2]: [where is the <thing>|which has the <thing>|which one shows the <thing>]?",
        f"Find the {IMAGE} [with|that has|that shows|containing] [the|a] <thing>.",
        f"[Pick|Choose|Select|Point to|Name] the {IMAGE} [with|that has|that contains|showing] [the|a] <thing>.",
        "[Does|Is it] the first or the second [image|picture|one] [that has|show|contain|shows] the <thing>?",
        "The <thing>: which [image|one]?",
    ),
    "same": (
        f"[Are|Are] [the two|these two|these|both|the|both of these|both the] [images|pictures|photos|drawings] [the same|identical|equal|alike|exactly the same|the very same]?",
        "[Are they|Are both|Are these|Are those|Are these two|Are the two] [the same|identical|equal|exactly alike]?",
        "Is [the second|the first] [image|picture|one] [the same as|identical to|equal to|a copy of] the [other|other one|other image]?",
        "Is the second image the same as the first[| one]?",
        "Is it [|twice ]the same [image|picture]?",
        "Do [the two|both|these|the|these two] [images|pictures] [show the same|show the same thing|match|look the same|depict the same|look identical|agree]?",
        f"[{TELL}|{WANT}] [if|whether] [the|these|both|the two] [images|pictures] [are the same|are identical|match|are equal].",
        "[Same|Same or not|The same|Identical|Same image|Same picture|Do they match]?",
        "[Yes or no:|yes/no:] [are the images the same|do the images match|are they identical]?",
        "Do I see the same [picture|image|thing] twice?",
    ),
    "compare": (
        f"[Compare|Please compare|Compare and describe] [the|the two|both|these|these two] [images|pictures|photos][| for me| briefly| in words|, please].",
        "[What is|What's|Tell me|Explain|Describe|Name|Show me] the [difference|differences] [between|of] [the images|the two images|the pictures|both images|them|these pictures|the two].",
        "[How|In what way|In which way] [do|are] [the|these|the two|both] [images|pictures] [differ|different|differ from each other|compare]?",
        "[Describe|Caption|Please describe] [both|the two|the|each of the|both of the|these|all] [images|pictures|photos][| briefly|, please| in turn].",
        "[Describe|Caption] each [image|picture][| in turn].",
        "What [is|do you see|can you see] in [the images|both images|the two images|each image|the pictures|these images|these two pictures|each of them]?",
        "What [do|does] [the|both|these|the two] [images|pictures] [show|contain|depict]?",
        "[Which|What] [image|picture|one] [has|shows|contains] what?",
        "[Say|Tell me|Write|List] what [is in each image|each image shows|is in which image|both images show|is in both pictures].",
        "[What|How] is different[| between the images| between them| here]?",
        f"[Can|Could|Would] you compare [the|these|both|the two] [images|pictures]?",
        "[Compare|Compare them|Compare both|Differences|Difference|Spot the difference].",
        "What [changed|has changed|is not the same|changes]?",
    ),
}  # fmt: skip

BEFORE = (
    *("",) * 22,
    *("Please answer. ", "Question: ", "Hi! ", "Hello, ", "Hey, ", "Look at the image. ", "Quick question: "),
    *("I have a question. ", "Here is my question: ", "Look closely. ", "OK, ", "So, ", "Good morning. ", "Hi there, "),
    *("This is an image. ", "Based on the image: ", "In the image: ", "Tell me: ", "Now: ", "Here is a picture. "),
    *("Take a look. ", "Help me with this. ", "I uploaded an image. ", "Q: ", "One more: ", "Sorry, ", "Thanks. ", "And "),
)  # fmt: skip
AFTER = (
    *("",) * 22,
    *(" Thanks.", " Thank you!", " Answer briefly.", " Answer in one word.", " please", " Please.", " Be short."),
    *(" Please answer.", " Answer with a word.", " I can't see it well.", " A short answer is enough.", " Thanks in advance."),
    *(" Be precise.", " Only the answer.", " Just answer.", " Reply shortly.", " Don't explain.", " Be brief.", " Answer:"),
)  # fmt: skip

_SLOT = re.compile(r"<([^<>]+)>")


def write(random: Random, ask: str, slots: Mapping[str, str]) -> str:
    """One training wording of a question, decorated and typed as people type."""
    pattern = random.choice(PATTERNS[ask])
    text = fill(choose(random, pattern), slots)
    return decorate(random, text)


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Replace `<name>`; a capitalised name takes the capitalised value."""
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return slots[name] if name in slots else capitalised(slots[name.lower()])

    return _SLOT.sub(value, text)


def capitalised(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


_CHOICE = re.compile(r"\[([^\[\]]*)\]")


def choose(random: Random, pattern: str) -> str:
    """One sentence of the pattern, innermost brackets first."""
    while (match := _CHOICE.search(pattern)) is not None:
        option = random.choice(match.group(1).split("|"))
        pattern = pattern[: match.start()] + option + pattern[match.end() :]
    return pattern


def expand(pattern: str) -> Iterator[str]:
    """Every sentence of the pattern, slots unfilled."""
    match = _CHOICE.search(pattern)
    if match is None:
        yield pattern
        return
    for option in dict.fromkeys(match.group(1).split("|")):
        yield from expand(pattern[: match.start()] + option + pattern[match.end() :])


def decorate(random: Random, text: str) -> str:
    """Add a lead-in or a closing word, vary case and punctuation."""
    text = capitalised(text)
    if text.endswith(".") and random.random() < 0.2:
        text = text[:-1] + random.choice(("?", "!", "", ","))
    before, after = random.choice(BEFORE), random.choice(AFTER)
    if before.endswith((", ", ": ", "And ")) and random.random() < 0.7:
        text = text[:1].lower() + text[1:]
    return type_carelessly(random, before + text + after)


def type_carelessly(random: Random, text: str) -> str:
    """Lower or upper case, lost punctuation, doubled marks, a slip of the finger."""
    chance = random.random()
    if chance < 0.14:
        text = text.lower()
    elif chance < 0.155:
        text = text.upper()
    if random.random() < 0.12:
        text = text.rstrip("?.!")
    elif random.random() < 0.04:
        text += random.choice(("?", "!", " ", "??", "\n", "..."))
    if random.random() < 0.03 and len(text) > 8:
        return _swap_two_letters(random.randrange(1, len(text) - 2), text)
    return text


def _swap_two_letters(index: int, text: str) -> str:
    pair = text[index : index + 2]
    if not pair.isalpha():  # digits may be what is asked for
        return text
    return text[:index] + pair[::-1] + text[index + 2 :]
