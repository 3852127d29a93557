// The official Node client against a running server; prints one JSON object of what it saw.
// Arguments: JSON with url, model, picture, other (data URIs), and caller {url, model, fields}.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: given.url, apiKey: "none", maxRetries: 0 });
const model = given.model;
const image = (url) => ({ type: "image_url", image_url: { url } });
const text = (words) => ({ type: "text", text: words });
const user = (...content) => [{ role: "user", content }];
const question = text("What shape is this?");
const seen = {};

const whole = await client.chat.completions.create({
  model, temperature: 0, messages: user(image(given.picture), question),
});
seen.answer = whole.choices[0].message.content;
seen.total = whole.usage.total_tokens - whole.usage.prompt_tokens - whole.usage.completion_tokens;

const both = await client.chat.completions.create({
  model, temperature: 0, messages: user(image(given.picture), image(given.other), question),
});
seen.more_image_tokens =
  both.usage.prompt_tokens_details.image_tokens > whole.usage.prompt_tokens_details.image_tokens;

let streamed = "";
for await (const chunk of await client.chat.completions.create({
  model, temperature: 0, stream: true, messages: user(image(given.picture), question),
})) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
seen.streamed = streamed;

const shape = { type: "string", enum: ["circle", "square", "triangle"] };
const schema = {
  type: "object", properties: { shape }, required: ["shape"], additionalProperties: false,
};
const parsed = await client.chat.completions.parse({
  model, temperature: 0, messages: user(image(given.picture), question),
  response_format: { type: "json_schema", json_schema: { name: "it", strict: true, schema } },
});
seen.parsed = shape.enum.includes(JSON.parse(parsed.choices[0].message.content).shape);

const response = await client.responses.create({
  model, temperature: 0,
  input: [{ role: "user", content: [
    { type: "input_image", image_url: given.picture }, { type: "input_text", text: question.text },
  ] }],
});
seen.response = response.output_text;

const caller = new OpenAI({ baseURL: given.caller.url, apiKey: "none", maxRetries: 0 });
const names = (message) => message.tool_calls.map((call) => call.function.name);
const calls = await caller.chat.completions.create(given.caller.fields);
seen.calls = names(calls.choices[0].message);
const gathered = await caller.chat.completions.stream(given.caller.fields).finalMessage();
seen.gathered = names(gathered);

const raised = async (work) => {
  try {
    await work();
    return "nothing";
  } catch (error) {
    return error.constructor.name;
  }
};
seen.not_found = await raised(() =>
  client.chat.completions.create({ model: "other", messages: user(question) }));
seen.bad_request = await raised(() => client.chat.completions.create({ model, messages: [] }));
seen.timeout = await raised(() => client.chat.completions.create(
  { model, max_tokens: 200, ignore_eos: true, n: 8, messages: user(question) }, { timeout: 20 }));
console.log(JSON.stringify(seen));
