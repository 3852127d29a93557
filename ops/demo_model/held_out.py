"""Wordings written by hand for evaluation only; a test keeps them out of training's reach.

`WATCHED` is looked at while a run is steered, `FINAL` only for the model card.
"""

from collections.abc import Mapping

Wordings = Mapping[str, tuple[str, ...]]

WATCHED: Wordings = {
    "colour": (
        "What colour did someone paint the <thing>?", "I can't tell colours apart, what is the color of that <thing>?",
        "So the <thing> would be which colour?", "Color of <thing> please", "Give the <thing>'s colour.",
        "Which of the colours is the <thing>?", "My son asks what color the <thing> is.",
    ),
    "colour_lone": ("And its colour?", "Which colour was it drawn in?", "Now what about its color?", "What color would you say it is?"),
    "shape_lone": (
        "What shape are we looking at?", "What is its shape?", "Which of the four shapes is it?", "What do you call this shape?",
        "Circle, square, triangle or star?", "Tell me its shape, please.", "What's that shape?",
    ),
    "shape": (
        "And the <adjective> one, what shape is it?", "What kind of figure is the <adjective> object?",
        "I'm curious about the shape of the <adjective> thing.", "Can you identify the <adjective> shape?",
        "Of what shape is the <adjective> object?",
    ),
    "position": (
        "Where exactly is the <thing>?", "Whereabouts is the <thing>?", "I can't find the <thing>, where is it?",
        "Could you point me to the <thing>?", "The <thing> - where is it?", "In which corner or edge do I find the <thing>?",
        "Tell me the whereabouts of the <thing>.",
    ),
    "count": (
        "How many <things> did they draw?", "Please tell me how many <things> I have here.", "What is your count of <things>?",
        "Count how many <things> appear.", "I see some <things>. How many exactly?", "How many <things> are in there altogether?",
        "Total number of <things>?",
    ),
    "presence": (
        "Would you say there is <a thing> in it?", "Is <a thing> part of the image?", "Was <a thing> drawn?",
        "Did they draw <a thing>?", "Tell me whether you can see <a thing>.", "Is there <a thing> somewhere?",
    ),
    "describe": (
        "What have we got here?", "Tell me about this picture.", "What am I looking at?", "Put the image into words.",
        "I'd love a description of this image.", "What's going on in this picture?", "What did I draw?",
    ),
    "number": (
        "Which number did I write?", "What number do we have here?", "Please read this for me.", "Which digits are these?",
        "Can you tell which number that is?", "I can't read it. What is the number?",
    ),
    "describe_nth": ("What about <nth image>?", "Tell me about <nth image>.", "What can be seen in <nth image>?", "Put <nth image> into words."),
    "colour_nth": ("The object in <nth image> has which color?", "What colour did they use in <nth image>?"),
    "shape_nth": ("The thing in <nth image> has which shape?", "What shape did they draw in <nth image>?"),
    "number_nth": ("The number in <nth image> is which one?", "Can you read the number in <nth image>?"),
    "presence_nth": ("Was <a thing> drawn in <nth image>?", "Tell me whether <nth image> shows <a thing>."),
    "which": (
        "Where do I find the <thing>, in image 1 or image 2?", "Tell me which of both has the <thing>.",
        "Which of these two shows the <thing>?", "I'm looking for the <thing>. Which image is it?",
        "Was the <thing> in the first or in the second picture?",
    ),
    "same": (
        "Did I send the same picture twice?", "Would you call the two images identical?", "Are these duplicates?",
        "Is one a copy of the other?", "Are the two of them equal?",
    ),
    "compare": (
        "How does the second image differ from the first?", "What sets the two pictures apart?", "Walk me through both images.",
        "Please tell me what the two images show.", "Which differences do you see?",
    ),
    "chat": (
        "How do I bake sourdough?", "Explain quantum entanglement.", "Who painted the Mona Lisa?", "Convert 5 miles to km.",
        "What should I wear today?", "Is this mushroom edible?", "Draft a reply to my boss.", "Why is the sky blue?",
        "Do cats dream?", "Which planet is the biggest?", "How tall is Mount Everest?", "What breed is the puppy?",
        "Can I use this commercially?", "Where do penguins live?", "What is the square root of 81?", "Is there a bus to Berlin?",
        "hello, nice to see you", "What are you good at?", "I was wondering whether you could help me plan my daughter's birthday party next week.",
        "Please write a cover letter for a junior accountant who just finished school and likes numbers.",
    ),
}  # fmt: skip

FINAL: Wordings = {
    "colour": (
        "What colour would you call the <thing>?", "Could I get the color of the <thing>?", "The <thing> appears in what colour?",
        "Which paint was used on the <thing>?  I mean the colour.", "I wonder what color the <thing> is.", "Describe the color of the <thing>.",
        "Do you recognise the colour of the <thing>?", "what's the <thing>'s color", "In your view, what color is the <thing>?",
        "Tell us which color the <thing> has.", "Of which colour is the <thing>?", "The color of the <thing> is what?",
    ),
    "colour_lone": ("What colour are we looking at?", "Can you recognise the colour?", "What is the object's color?", "Its color, please?", "Which color did they pick?"),
    "shape_lone": (
        "What sort of geometric shape do I see?", "Could you name this shape?", "Do you recognise the shape?", "what's its form", "Which figure is drawn here?",
        "What would you call this shape?", "Work out which shape that is.", "Which shape have I drawn?", "Is it round, or which shape is it?", "Please work out the shape.",
    ),
    "shape": (
        "What would you call the <adjective> shape?", "The thing that is <adjective>, what shape is it?", "Could you name the <adjective> figure?",
        "Which shape was painted <adjective>?", "What's that <adjective> thing?", "Do you recognise the shape of the <adjective> object?",
        "I see something <adjective>. Which shape is it?", "Describe the shape of the <adjective> object.",
    ),
    "position": (
        "Where would I have to look for the <thing>?", "Can you spot where the <thing> is?", "Which area does the <thing> occupy?",
        "Where has the <thing> been put?", "Help me find the <thing>.", "I'm searching for the <thing>, where is it in the picture?",
        "Whereabouts in the image is the <thing>?", "Please say where the <thing> is.", "Do you see where the <thing> is?",
        "On what side or corner is the <thing>?", "What is the <thing>'s location?", "where in there is the <thing>",
    ),
    "count": (
        "How many <things> would you count?", "How many <things> have been drawn?", "Could you give me the number of <things>?", "Work out how many <things> there are.",
        "So how many <things> is that?", "I wonder how many <things> there are.", "How many <things> can be found?", "What number of <things> do you see?",
        "Any idea how many <things> the image has?", "<things>: how many?", "There are several <things>, or not? How many?", "how many <things> in all",
    ),
    "presence": (
        "Does <a thing> appear?", "Can I see <a thing> in this image?", "I believe there is <a thing>. Am I right?", "Has <a thing> been drawn?",
        "Is <a thing> among the things shown?", "Does the picture happen to show <a thing>?", "Is there <a thing> to be seen?", "Would I find <a thing> in this picture?",
        "Do you spot <a thing>?", "so is there <a thing> or not", "Could there be <a thing> in the image?", "Is <a thing> depicted?",
    ),
    "describe": (
        "What do we see here?", "Could you explain what this picture shows?", "What's the content of this image?", "Tell me everything about the image.",
        "Please summarise the picture.", "What has been drawn?", "What do you make of this image?", "I can't see the picture. What's in it?",
        "In one sentence, what does the picture show?", "what does my drawing show", "Which things are in this picture?", "Help me understand what is in the photo.",
    ),
    "number": (
        "Which number has been drawn?", "Could you read out what is written?", "What figure do I see? A number, I think.", "Do you recognise the number?",
        "Tell us the number, please.", "The drawing has a number in it, which one?", "what number have I got here", "Which number can be seen?",
        "Please decipher the number.", "I wrote down a number. Which one?", "What's written in this picture?", "The number shown is what?",
    ),
    "describe_nth": (
        "Would you run me through <nth image>?", "What do we see in <nth image>?", "What's the content of <nth image>?", "Say what <nth image> has in it.",
        "What has been drawn in <nth image>?", "I can't see <nth image>. What's in it?",
    ),
    "colour_nth": ("What colour would you call the object in <nth image>?", "Could I get the color of the shape in <nth image>?", "Say which color the object in <nth image> has."),
    "shape_nth": ("Which shape was drawn in <nth image>?", "Could you name the shape in <nth image>?", "Say which shape <nth image> shows."),
    "number_nth": ("Which number was written in <nth image>?", "Could you read the number in <nth image>?", "Say which number <nth image> shows."),
    "presence_nth": ("Does <a thing> appear in <nth image>?", "Can I see <a thing> in <nth image>?", "Would I find <a thing> in <nth image>?", "Has <a thing> been drawn in <nth image>?"),
    "which": (
        "Which of my two pictures has the <thing>?", "Could you say which image the <thing> is in?", "In which one did they draw the <thing>?",
        "I'm trying to find the <thing>, is it in the first or the second image?", "Do you see the <thing> in the first image or in the second?",
        "The <thing> belongs to which image?", "Out of the two images, which shows the <thing>?", "which pic has the <thing>",
        "Please say which picture includes the <thing>.", "Which image would you open to see the <thing>?",
    ),
    "same": (
        "Is this the same picture two times?", "Could you check if both images are the same?", "Is the content of both images identical?",
        "Are the first and the second image the same?", "So they are the same?", "Is image 2 equal to image 1?", "Are the pictures alike or not?",
        "Do both pictures have the same content?", "is it the same thing in both images",
    ),
    "compare": (
        "Could you explain how the pictures differ?", "What does each of the images show?", "Tell me about both pictures.", "What makes the two images different?",
        "Please put both images into words.", "How would you describe the two images?", "What do we see in the first and in the second image?",
        "Give me a comparison of the two images.", "what's different in the second picture",
    ),
    "chat": (
        "Which wine goes with salmon?", "How long should I boil an egg?", "Explain the plot of Hamlet.", "Who was the first man on the moon?",
        "What's 17 percent of 340?", "My laptop keeps crashing, any ideas?", "Should I invest in index funds?", "Is it going to rain in Oslo tomorrow?",
        "Rewrite this paragraph in a formal tone.", "How do vaccines work?", "Good afternoon, dear assistant!", "hey buddy, what's new",
        "Which skills do you have?", "so... what is this thing for?", "Could you tell me who built you and why?", "What is the fastest animal on land?",
        "I feel a bit lonely tonight and would just like somebody to talk to for a while.", "Give me a workout plan for the week, with rest days.",
        "Why did the Roman Empire fall?", "Please fix the indentation in my YAML file.", "How can I get rid of ants in the kitchen?",
        "Can you order me a taxi to the station at half past six?", "What does 'serendipity' mean?", "Name the longest river in Europe.",
        "Sing me a lullaby.", "asdf", "42?", "Does the man in the photo look tired?", "What's the registration number of that van?", "Buenos días",
    ),
}  # fmt: skip
