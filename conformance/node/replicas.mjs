// Clients of several replicas behind one address, of which one is lost in the
// middle of an answer, and clients that speak to one replica of what they have
// heard from another.

const user = (body) => ({ message: { kind: 'user', body } });

/** What a person reads of each message. */
const shown = (conversation) =>
	(conversation?.messages ?? []).map(({ id, parts }) => ({ id, text: parts.map((part) => part.text ?? '').join('') }));

/** Tells what was shown before and is not there any more; nothing if all is. */
const taken = (before, now) => before.filter(({ id, text }, i) => now[i]?.id !== id || !now[i].text.startsWith(text));

/** Follows a conversation and checks that what was shown once stays. */
function follow(c, client, live) {
	const observation = client.observe({ live });
	const seen = { live, phases: [], taken: [], errors: [], silence: 0 };
	let before = [];
	let last = Date.now();
	const words = () => before.flatMap(({ text }) => text.match(/word\d+ /g) ?? []).length;
	observation.subscribe(() => {
		const { conversation, phase, error } = observation.getSnapshot();
		if (seen.phases.at(-1) !== phase) seen.phases.push(phase);
		if (error && phase !== 'connecting') seen.errors.push(String(error));
		const now = shown(conversation);
		seen.taken.push(...taken(before, now));
		const said = words();
		before = now;
		if (words() === said) return;
		seen.silence = Math.max(seen.silence, Date.now() - last);
		last = Date.now();
	});
	return {
		seen,
		observation,
		words,
		settled: () => observation.getSnapshot().conversation?.settlements.length ?? 0,
	};
}

/** Reads all changes after an offset, page by page. */
async function changes(url, offset) {
	const all = [];
	for (;;) {
		const response = await fetch(`${url}?view=updates&offset=${offset}`);
		if (!response.ok) throw new Error(`reading changes: ${response.status} ${await response.text()}`);
		all.push(...(await response.json()));
		if (response.headers.get('stream-up-to-date') === 'true') return all;
		offset = response.headers.get('stream-next-offset');
	}
}

/**
 * Some clients follow a conversation, one waits for an answer, and when so many
 * words of it have been said, something happens.
 */
export async function replicas(c) {
	const [path, message, words] = c.args;
	const client = c.client(path);
	await client.wait(await client.send(user('first @id=first @text=3')));
	const followers = ['sse', 'sse', 'sse', 'sse', 'sse', 'sse', 'long-poll', 'long-poll', 'long-poll'].map((live) => follow(c, c.client(path), live));
	await c.until('all live', () => followers.every(({ seen }) => seen.phases.at(-1) === 'live'));

	const admission = await client.send(user(message));
	const heard = [];
	const waiting = client.wait(admission, { onEvent: (chunk) => void heard.push(chunk) });
	const before = followers[0].words();
	await c.until('the middle of the answer', () => followers.every((follower) => follower.words() >= before + Number(words)));
	for (const { seen } of followers) seen.silence = 0;
	await c.ask('strike');
	await waiting;
	await c.until('the end everywhere', () => followers.every((follower) => follower.settled() === 2));

	c.note('followers', followers.map(({ seen }) => seen));
	c.note('states', followers.map(({ observation }) => observation.getSnapshot().conversation));
	c.note('heard', heard);
	c.note('changes', (await changes(admission.streamUrl, admission.offset)).filter((chunk) => chunk.type !== 'stream-checkpoint'));
	c.note('history', await client.history());
	for (const { observation } of followers) observation.close();
}

/** Each step of a conversation through another replica. */
export async function elsewhere(c) {
	const [path, ...origins] = c.args;
	const [a, b, d] = origins.map((origin) => c.client(path, { url: `${origin}/agents/${path}` }));
	const there = (admission, client) => ({ ...admission, streamUrl: client.url });

	const first = await a.send(user('first @id=e1 @text=5'));
	await b.wait(there(first, b));
	c.note('reply by submission id', await d.read(first.submissionId));

	const joined = await a.send(user('long @id=e2 @text=60 @delay=20'));
	const follower = follow(c, b, 'sse');
	await c.until('the middle of the answer', () => follower.words() >= 10);
	const second = await d.send(user('and also @id=e3 @text=4'));
	await b.wait(there(joined, b));
	c.note('answer to what joined', (await a.read(there(second, a))).text);
	follower.observation.close();

	const long = await b.send(user('very long @id=e4 @text=600 @delay=50'));
	const onlooker = follow(c, a, 'sse');
	const already = onlooker.words();
	await c.until('the middle of the answer', () => onlooker.words() >= already + 5);
	const began = Date.now();
	c.note('abort', await d.abort());
	await c.tell('wait', a.wait(there(long, a)));
	c.note('milliseconds from the abort to its settlement', Date.now() - began);
	c.note('reply after the abort', await c.client(path).read(await d.send(user('after @id=e5 @text=3'))));
	onlooker.observation.close();
}

/** More messages than the replicas take on, sent again when there is room. */
export async function crowded(c) {
	const [agent, most] = c.args;
	const all = [];
	let refused;
	let retryAfter;
	const watching = async (...request) => {
		const response = await fetch(...request);
		if (response.status === 503) retryAfter = response.headers.get('retry-after');
		return response;
	};
	for (let i = 0; i < Number(most) && !refused; i++) {
		const client = c.client(`${agent}/crowd-${i}`, { fetch: watching });
		const message = user(`hold ${i} @id=crowd${i} @text=60 @delay=50`);
		try {
			all.push({ client, admission: await client.send(message) });
		} catch (error) {
			refused = { client, message };
			await c.tell('refused', Promise.reject(error));
			c.note('retry after', retryAfter);
			await c.tell('history of what was refused', client.history());
		}
		await c.sleep(100);
	}
	if (!refused) return;
	for (let tries = 1; ; tries++) {
		try {
			all.push({ client: refused.client, admission: await refused.client.send(refused.message) });
			break;
		} catch (error) {
			if (error.status !== 503 || tries > 60) throw error;
			await c.sleep(500);
		}
	}
	const words = [];
	for (const { client, admission } of all) words.push((await client.read(admission)).text.split(' ').length);
	c.note('words of the answers', words);
	const messages = [];
	for (const { client } of all) messages.push((await client.history()).messages.filter(({ role }) => role === 'user').length);
	c.note('messages', messages);
}
