// The anthropic SDK for TypeScript against the box: anthropic_suite.mjs BASE_URL MODEL, with the key in ANTHROPIC_API_KEY.
import { SCRIPTED, all, check, fromCache, parts, rejects } from './report.mjs';

const Anthropic = fromCache('@anthropic-ai/sdk').default ?? fromCache('@anthropic-ai/sdk');
const [base, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: base, maxRetries: 0, timeout: 120_000 });
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ name: 'weather', description: 'Weather of a city', input_schema: CITY }];
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const said = (content) => [{ role: 'user', content }];
const ask = (content, more = {}) => client.messages.create({ model, max_tokens: 60, temperature: 0, messages: said(content), ...more });
const textOf = (message) => message.content.filter((b) => b.type === 'text').map((b) => b.text).join('');
const callsOf = (message) => message.content.filter((b) => b.type === 'tool_use').map((b) => [b.name, b.input.city]);
const cities = 'How is the weather in two cities?';

const everything = {
  async models() {
    const names = (await all(client.models.list({ limit: 1 }))).map((m) => m.id);
    check(`models.list() pages through all of them, one at a time (${names})`, names.includes(model) && new Set(names).size === names.length);
    const found = await client.models.retrieve(model);
    check('models.retrieve() finds it, with a date', found.id === model && new Date(found.created_at).getFullYear() > 2000);
  },
  async 'a whole answer'() {
    const answer = await ask('Hello?', { system: 'Be short.' });
    check(`a whole answer has text: ${JSON.stringify(textOf(answer))}`, textOf(answer));
    check('it tells its usage and why it ended', answer.usage.input_tokens > 0 && ['end_turn', 'max_tokens'].includes(answer.stop_reason));
    check('it carries a request id', answer._request_id);
  },
  async 'a streamed answer'() {
    const events = await all(await ask('Hello?', { stream: true }));
    const kinds = events.map((e) => e.type).filter((k) => k !== 'ping');
    check(`events come in their order (${kinds[0]} … ${kinds.at(-1)})`, kinds[0] === 'message_start' && same(kinds.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']));
    const final = await client.messages.stream({ model, max_tokens: 60, temperature: 0, messages: said('Hello?') }).finalMessage();
    check('the helper .stream() puts the same answer together', textOf(final) && final.usage.output_tokens > 0);
  },
  async 'counting tokens'() {
    const short = (await client.messages.countTokens({ model, messages: said('foo') })).input_tokens;
    const long = (await client.messages.countTokens({ model, messages: said('foo bar '.repeat(400)), tools })).input_tokens;
    check(`countTokens counts (${short}, ${long})`, short > 0 && short < long);
  },
  async errors() {
    const stranger = client.withOptions({ apiKey: `vw_${'A'.repeat(43)}` });
    let error = await rejects(Anthropic.AuthenticationError, () => stranger.messages.create({ model, max_tokens: 4, messages: said('x') }));
    check(`a wrong key is an AuthenticationError: ${error?.message}`, error?.error?.error?.type === 'authentication_error');
    error = await rejects(Anthropic.NotFoundError, () => ask('x', { model: 'claude-nope', stream: true }));
    check(`an unknown model is a NotFoundError that names the loaded one: ${error?.message}`, error?.message.includes(model));
    const tooLong = 'far too much '.repeat(SCRIPTED ? 30 : 60000);
    for (const stream of [false, true]) {
      error = await rejects(Anthropic.BadRequestError, () => ask(tooLong, { stream }));
      check(`${stream ? 'streamed' : 'whole'}: too long a prompt is a BadRequestError in the words that clients know: ${error?.message}`, error?.message.includes('prompt is too long: '));
    }
  },
};

const scripted = {
  async tools() {
    const wanted = [['weather', 'Oslo'], ['weather', 'Pune']];
    const answer = await ask(cities, { tools });
    check('two parallel calls come whole', same(callsOf(answer), wanted) && answer.stop_reason === 'tool_use');
    const final = await client.messages.stream({ model, max_tokens: 60, temperature: 0, messages: said(cities), tools }).finalMessage();
    check('streamed, their arguments are put together from their pieces', same(callsOf(final), wanted));
    const results = answer.content.filter((b) => b.type === 'tool_use').map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: `sunny in ${b.input.city}` }));
    const end = await ask('', { messages: [...said(cities), { role: 'assistant', content: answer.content }, ...said(results)], tools });
    check('with their results the answer follows', textOf(end) === 'Rain in Oslo, sun in Pune.' && end.stop_reason === 'end_turn');
  },
  async 'structured output'() {
    const schema = { type: 'object', properties: { city: { type: 'string' }, degrees: { type: 'integer' } }, required: ['city', 'degrees'], additionalProperties: false };
    const answer = await ask('The weather as a record, please.', { output_config: { format: { type: 'json_schema', schema } } });
    check('structured output is a document of its schema', same(JSON.parse(textOf(answer)), { city: 'Oslo', degrees: 7 }));
  },
  async images() {
    const dot = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: DOT } };
    check('an image in a message reaches the model', textOf(await ask([{ type: 'text', text: 'What is this?' }, dot])) === 'A red dot.');
    const used = { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Oslo' } }] };
    const messages = [...said('Look.'), used, ...said([{ type: 'tool_result', tool_use_id: 'toolu_1', content: [dot] }])];
    check("an image in a tool's result does too", textOf(await ask('', { messages, tools })) === 'A red dot.');
  },
  async thinking() {
    const thinking = { type: 'enabled', budget_tokens: 1024 };
    const final = await client.messages.stream({ model, max_tokens: 2000, thinking, messages: said('Please think first.') }).finalMessage();
    check('thinking is a block of its own with a signature', same(final.content.map((b) => b.type), ['thinking', 'text']) && final.content[0].signature);
  },
  async trouble() {
    let error = await rejects(Anthropic.APIError, async () => all(await ask('Now break off.', { stream: true })));
    check(`an engine's error in mid-stream is an error of the SDK, in the engine's words: ${error?.message}`, error?.message.includes('stumbled'));
    error = await rejects(Anthropic.APIError, () => ask('Tell me, are you busy?'));
    check(`a busy engine is a 529 that says when to come again (${error?.status})`, error?.status === 529 && error.headers.get('retry-after'));
    const stream = await ask('Please never stop.', { stream: true });
    let seen = 0;
    for await (const _ of stream) if (++seen === 5) break;
    check('a stream can be left in the middle', seen === 5 && stream.controller.signal.aborted);
    check('the box answers on', textOf(await ask('Hello?')));
  },
};

await parts(SCRIPTED ? { ...everything, ...scripted } : everything);
