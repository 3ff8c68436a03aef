// The openai SDK for TypeScript against the box: openai_suite.mjs BASE_URL MODEL, with the key in OPENAI_API_KEY.
import { SCRIPTED, all, check, fromCache, parts, rejects } from './report.mjs';

const OpenAI = fromCache('openai').default ?? fromCache('openai');
const [base, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, maxRetries: 0, timeout: 120_000 });
const DOT = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WEATHER = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };
const RECORD = { type: 'object', properties: { city: { type: 'string' }, degrees: { type: 'integer' } }, required: ['city', 'degrees'], additionalProperties: false };
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const said = (content) => [{ role: 'user', content }];
const ask = (content, more = {}) => client.chat.completions.create({ model, messages: said(content), max_tokens: 60, temperature: 0, ...more });
const respond = (input, more = {}) => client.responses.create({ model, input, max_output_tokens: 60, temperature: 0, ...more });
const offered = [{ type: 'function', function: { name: 'weather', description: 'Weather of a city', parameters: WEATHER } }];
const cities = 'How is the weather in two cities?';

const everything = {
  async models() {
    const names = (await all(client.models.list())).map((m) => m.id);
    check(`models.list() names the model (${names})`, names.includes(model));
    check('models.retrieve() finds it', (await client.models.retrieve(model)).id === model);
  },
  async 'a whole answer'() {
    const answer = await ask('Hello?');
    check(`a whole answer has text: ${JSON.stringify(answer.choices[0].message.content)}`, answer.choices[0].message.content);
    const { prompt_tokens: put, completion_tokens: got, total_tokens: total } = answer.usage;
    check(`its usage adds up (${put} + ${got})`, put > 0 && put + got === total);
  },
  async 'a streamed answer'() {
    const chunks = await all(await ask('Hello?', { stream: true, stream_options: { include_usage: true } }));
    const text = chunks.map((c) => c.choices[0]?.delta.content ?? '').join('');
    check(`a streamed answer has text in ${chunks.length} chunks`, text && chunks.length > 3);
    check('exactly one chunk says why it ended', chunks.filter((c) => c.choices[0]?.finish_reason).length === 1);
    check('the last chunk is the usage and has no choice', chunks.at(-1).usage?.completion_tokens > 0 && chunks.at(-1).choices.length === 0);
    check('who does not ask for usage gets none', (await all(await ask('Hello?', { stream: true }))).every((c) => !c.usage));
    const stream = client.chat.completions.stream({ model, messages: said('Hello?'), max_tokens: 60, temperature: 0 });
    check('the helper .stream() puts an answer together', Boolean(await stream.finalContent()));
  },
  async responses() {
    const answer = await respond('Hello?');
    check('responses.create() has text and usage', answer.output_text && answer.usage.input_tokens + answer.usage.output_tokens === answer.usage.total_tokens);
    const events = await all(await respond('Hello?', { stream: true }));
    check('streamed, its numbers rise by one', events.every((e, at) => e.sequence_number === at));
    const ends = ['response.completed', 'response.incomplete'];
    check(`it begins and ends as it should (${events[0].type} … ${events.at(-1).type})`, events[0].type === 'response.created' && ends.includes(events.at(-1).type));
    const stream = client.responses.stream({ model, input: 'Hello?', max_output_tokens: 60, temperature: 0 });
    check('the helper .stream() puts an answer together', (await stream.finalResponse()).output_text);
  },
  async errors() {
    const stranger = client.withOptions({ apiKey: `vw_${'A'.repeat(43)}` });
    let error = await rejects(OpenAI.AuthenticationError, () => stranger.models.list());
    check(`a wrong key is an AuthenticationError: ${error?.message}`, error?.code === 'invalid_api_key');
    error = await rejects(OpenAI.NotFoundError, () => ask('x', { model: 'gpt-nope', stream: true }));
    check(`an unknown model is a NotFoundError that names the loaded one: ${error?.message}`, error?.code === 'model_not_found' && error.message.includes(model));
    const tooLong = 'far too much '.repeat(SCRIPTED ? 30 : 60000);
    for (const [name, call] of Object.entries({ chat: () => ask(tooLong, { stream: true }), responses: () => respond(tooLong, { stream: true }) })) {
      error = await rejects(OpenAI.BadRequestError, call);
      check(`${name}: too long a prompt is a BadRequestError: ${error?.message}`, error?.code === 'context_length_exceeded');
    }
  },
};

const scripted = {
  async tools() {
    const messages = said(cities);
    const wanted = [['call_oslo', 'weather', '{"city":"Oslo"}'], ['call_pune', 'weather', '{"city":"Pune"}']];
    const calls = (completion) => completion.choices[0].message.tool_calls.map((c) => [c.id, c.function.name, c.function.arguments]);
    const answer = await ask(cities, { tools: offered });
    check('two parallel calls come whole', same(calls(answer), wanted) && answer.choices[0].finish_reason === 'tool_calls');
    const stream = client.chat.completions.stream({ model, messages, tools: offered });
    check('streamed, their arguments are put together from their pieces', same(calls(await stream.finalChatCompletion()), wanted));
    const results = answer.choices[0].message.tool_calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: 'sunny in Pune' }));
    const end = await client.chat.completions.create({ model, messages: [...messages, answer.choices[0].message, ...results], tools: offered });
    check('with their results the answer follows', end.choices[0].message.content === 'Rain in Oslo, sun in Pune.');
    const runner = client.chat.completions.runTools({
      model,
      messages,
      stream: true,
      tools: [{ type: 'function', function: { name: 'weather', parameters: WEATHER, parse: JSON.parse, function: ({ city }) => `sunny in ${city}` } }],
    });
    check('the helper .runTools() goes the whole round', (await runner.finalContent()) === 'Rain in Oslo, sun in Pune.');
  },
  async 'tools of responses'() {
    const tools = [{ type: 'function', name: 'weather', parameters: WEATHER, strict: true }];
    const stream = client.responses.stream({ model, input: cities, tools });
    const calls = (await stream.finalResponse()).output.filter((i) => i.type === 'function_call');
    check('responses bring both calls', same(calls.map((c) => [c.call_id, JSON.parse(c.arguments).city]), [['call_oslo', 'Oslo'], ['call_pune', 'Pune']]));
    const input = [...said(cities)];
    for (const { call_id, name, arguments: given } of calls) input.push({ type: 'function_call', call_id, name, arguments: given });
    for (const { call_id, arguments: given } of calls) input.push({ type: 'function_call_output', call_id, output: `sunny in ${JSON.parse(given).city}` });
    check('with their results the answer follows', (await respond(input, { tools })).output_text === 'Rain in Oslo, sun in Pune.');
  },
  async 'structured output'() {
    const answer = await ask('The weather as a record, please.', { response_format: { type: 'json_schema', json_schema: { name: 'record', strict: true, schema: RECORD } } });
    check('structured output is a document of its schema', same(JSON.parse(answer.choices[0].message.content), { city: 'Oslo', degrees: 7 }));
    const told = await respond('The weather as a record, please.', { text: { format: { type: 'json_schema', name: 'record', strict: true, schema: RECORD } } });
    check('the same with responses', same(JSON.parse(told.output_text), { city: 'Oslo', degrees: 7 }));
  },
  async images() {
    const chat = await ask([{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url: DOT } }]);
    check('an image in a chat message reaches the model', chat.choices[0].message.content === 'A red dot.');
    const told = await respond(said([{ type: 'input_text', text: 'What is this?' }, { type: 'input_image', image_url: DOT, detail: 'auto' }]));
    check('an image in a responses message does too', told.output_text === 'A red dot.');
  },
  async trouble() {
    let error = await rejects(OpenAI.APIError, async () => all(await ask('Now break off.', { stream: true })));
    check(`an engine's error in mid-stream is an error of the SDK, in the engine's words: ${error?.message}`, error?.message.includes('stumbled'));
    error = await rejects(OpenAI.InternalServerError, () => ask('Tell me, are you busy?'));
    check('a busy engine is a 503 that says when to come again', error?.status === 503 && error.headers.get('retry-after'));
    for (const stream of [await ask('Please never stop.', { stream: true }), await respond('Please never stop.', { stream: true })]) {
      let seen = 0;
      for await (const _ of stream) if (++seen === 5) break;
      check('a stream can be left in the middle', seen === 5 && stream.controller.signal.aborted);
    }
    check('the box answers on', (await ask('Hello?')).choices[0].message.content);
  },
  async embeddings() {
    const made = await client.embeddings.create({ model, input: ['a', 'b'] });
    check('embeddings come in the order of the texts', made.data.length === 2 && made.data[0].embedding.length > 0);
  },
};

await parts(SCRIPTED ? { ...everything, ...scripted } : everything);
