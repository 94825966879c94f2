// The scenarios that were recorded, by the names of the recordings. Each does
// what the recording's client did; labels are those of the recording's notes.
import { reactHook } from './react.mjs';
import { reduce } from './reduce.mjs';
import { crowded, elsewhere, replicas } from './replicas.mjs';

const user = (body, attachments) => ({ message: { kind: 'user', body, ...(attachments ? { attachments } : {}) } });

const dot = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==';
const image = (filename) => ({ type: 'image', data: dot, mimeType: 'image/png', ...(filename ? { filename } : {}) });

/** An observation that is followed to the end of everything that was sent. */
function watch(c, client, live) {
	const observation = client.observe({ live });
	const phases = [observation.getSnapshot().phase];
	const follow = () => {
		const { phase } = observation.getSnapshot();
		if (phases.at(-1) !== phase) phases.push(phase);
	};
	observation.subscribe(follow);
	return {
		observation,
		phases,
		settled: (n) => c.until(`${n} settlements`, () => (observation.getSnapshot().conversation?.settlements.length ?? 0) >= n),
	};
}

/**
 * Waits for a submission while connections are cut. The client reconnects by
 * itself, unless a cut comes in the middle of a body: then its wait() fails, and
 * is to be called again.
 */
async function persist(client, admission) {
	for (;;) {
		try {
			return await client.wait(admission);
		} catch (error) {
			if (error.name !== 'TypeError') throw error;
		}
	}
}

async function observeNew(c, path, live, body) {
	const client = c.client(path);
	const { observation, phases, settled } = watch(c, client, live);
	await c.until('the phase absent', () => observation.getSnapshot().phase === 'absent');
	await client.send(user(body));
	await c.sleep(100);
	observation.refresh();
	await settled(1);
	c.note('SDK observe() phases', phases);
	c.note('SDK observe() final snapshot', observation.getSnapshot());
	observation.close();
	c.note('SDK after close()', { phase: observation.getSnapshot().phase });
}

export const scenarios = {
	reduce,
	'react-hook': reactHook,
	replicas,
	elsewhere,
	crowded,

	async '01-sdk-send-wait-history'(c) {
		const client = c.client('chat/c-a');
		const first = await c.tell('SDK send()', client.send(user('hello @id=a1 @text=5')));
		await client.wait(first);
		c.note('SDK wait()', 'resolved');
		await c.tell('SDK history()', client.history());
		const second = await client.send(user('second turn @id=a2 @text=5'));
		await client.wait(second);
		const history = await c.tell('SDK history()', client.history());
		c.note('SDK readSubmissionReply()', c.readSubmissionReply(history, second.submissionId));
	},

	async '02-sdk-read-admission'(c) {
		const client = c.client('chat/c-b');
		const admission = await client.send(user('hello @id=b1 @text=5'));
		await c.tell('SDK read(admission)', client.read(admission));
		await c.tell('SDK read(submissionId)', client.read(admission.submissionId));
		await c.tell('SDK wait(admission) again, already settled', client.wait(admission));
	},

	async '03-sdk-wait-slow-reply'(c) {
		const client = c.client('chat/c-slow');
		const types = [];
		const admission = await client.send(user('hello @id=slow1 @text=40 @delay=75'));
		await client.wait(admission, {
			onEvent: (chunk) => {
				if (types.at(-1) !== chunk.type) types.push(chunk.type);
			},
		});
		c.note('SDK wait() onEvent types', types);
	},

	'04-sdk-observe-longpoll': (c) => observeNew(c, 'chat/c-ol', 'long-poll', 'hello @id=ol @text=20 @delay=75'),
	'05-sdk-observe-sse': (c) => observeNew(c, 'chat/c-os', 'sse', 'hello @id=os @text=20 @delay=75'),

	async '06-sdk-observe-existing-sse'(c) {
		const client = c.client('chat/c-oe');
		await client.read(await client.send(user('first @id=oe1 @text=3')));
		const { observation, settled } = watch(c, client, 'sse');
		await c.until('the phase live', () => observation.getSnapshot().phase === 'live');
		await client.wait(await client.send(user('second @id=oe2 @text=20 @delay=75')));
		await settled(2);
		c.note('SDK observe() snapshot', observation.getSnapshot());
		observation.close();
	},

	async '07-sdk-observe-reconnect-sse'(c) {
		const client = c.client('chat/c-or');
		await client.read(await client.send(user('first @id=or1 @text=3')));
		const { observation, phases, settled } = watch(c, client, 'sse');
		await c.until('the phase live', () => observation.getSnapshot().phase === 'live');
		const waiting = persist(client, await client.send(user('second @id=or2 @text=60 @delay=75')));
		await c.sleep(2000);
		await c.cut();
		await waiting;
		await settled(2);
		if (!phases.includes('connecting')) throw new Error(`the cut was not noticed: ${phases}`);
		c.note('SDK observe() snapshot after reconnect', observation.getSnapshot());
		observation.close();
	},

	async '08-sdk-wait-reconnect-longpoll'(c) {
		const client = c.client('chat/c-wr');
		const waiting = persist(client, await client.send(user('first @id=wr1 @text=60 @delay=75')));
		await c.sleep(2000);
		await c.cut();
		await waiting;
		c.note('SDK wait()', 'resolved');
	},

	async '09-sdk-abort'(c) {
		const client = c.client('chat/c-ab');
		await c.tell('SDK abort() before the conversation exists', client.abort());
		await client.read(await client.send(user('first @id=ab1 @text=3')));
		await c.tell('SDK abort() while idle', client.abort());
		const admission = await client.send(user('long @id=ab2 @text=400 @delay=50'));
		await c.sleep(1500);
		await c.tell('SDK abort() while running', client.abort());
		await c.tell('SDK wait()', client.wait(admission));
		await c.tell('SDK history()', client.history());
		await c.tell('SDK read()', client.read(admission));
		await c.tell('SDK read()', client.read(await client.send(user('after @id=ab3 @text=3'))));
	},

	async '10-sdk-abort-queued'(c) {
		const client = c.client('chat/c-abq');
		const first = await client.send(user('long @id=abq1 @text=400 @delay=50'));
		const second = await client.send(user('queued @id=abq2 @text=3'));
		await c.sleep(1200);
		await c.tell('SDK abort()', client.abort());
		await c.tell('SDK wait(first)', client.wait(first));
		await c.tell('SDK wait(second)', client.wait(second));
		await c.tell('SDK history()', client.history());
	},

	async '11-sdk-attachments'(c) {
		const client = c.client('chat/c-at');
		await client.wait(await client.send(user('look @id=at1 @text=3', [image('dot.png')])));
		const history = await c.tell('SDK history()', client.history());
		const { url } = history.messages[0].parts.find((part) => part.type === 'file');
		const response = await fetch(url);
		c.note('SDK GET part.url', { status: response.status, bytes: (await response.arrayBuffer()).byteLength });
		c.note('SDK attachmentUrl(x y)', client.attachmentUrl('x y'));
		await fetch(c.url('chat/c-at/attachments/nope'));
		await fetch(url, { method: 'HEAD' });
		await fetch(url, { method: 'POST' });
		await fetch(url.replace('c-at', 'c-none'));
		await client.wait(await client.send(user('again @id=at2 @text=3', [image()])));
		await c.tell('SDK history()', client.history());
		await c.tell('SDK send()', client.send(user('x', [{ type: 'file', data: dot, mimeType: 'text/plain' }])));
		await c.tell('SDK send()', client.send(user('x @id=at3', [{ type: 'image', data: '!!!', mimeType: 'image/png' }])));
	},

	async '12-sdk-uid-conditions'(c) {
		const client = c.client('chat/c-uid');
		const send = (label, options) => c.tell(label, client.send({ ...options }));
		await send('SDK send({uid:"inst_x"}) on an absent instance', { uid: 'inst_x', ...user('x @text=1') });
		const created = await send('SDK send({uid:null}) creates', { uid: null, ...user('create @id=u1 @text=1') });
		await client.wait(created);
		await send('SDK send({uid:null}) again', { uid: null, ...user('x @text=1') });
		await send('SDK send({uid}) continues', { uid: created.uid, ...user('x @id=u2 @text=1') });
		await send('SDK send({uid:"wrong"})', { uid: 'inst_wrong', ...user('x @text=1') });
		await send('SDK send({uid, initialData})', { initialData: {}, uid: created.uid, ...user('x @text=1') });
		await fetch(c.url('chat/c-uid'), { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"kind":"user","body":"x","uid":5}' });
	},

	async '13-sdk-initial-data'(c) {
		const client = c.client('schema/c-id1');
		await c.tell('SDK send() without initialData', client.send(user('x @text=1')));
		await c.tell('SDK send() bad initialData', client.send({ initialData: { issue: 'seven' }, ...user('x @text=1') }));
		const admission = await c.tell('SDK send()', client.send({ initialData: { issue: 7 }, ...user('go @id=id1 @tool=work:{} @text=3') }));
		await c.tell('SDK read() (data parts, metadata)', client.read(admission));
		await c.tell('SDK history()', client.history());
		await c.tell('SDK send()', client.send({ initialData: { issue: 'bad' }, ...user('more @id=id2 @text=1') }));
	},

	async '14-sdk-idempotency'(c) {
		const client = c.client('chat/c-idem');
		const once = { idempotencyKey: 'key-1', ...user('once @id=k1 @text=3') };
		const admission = await c.tell('SDK send({idempotencyKey})', client.send(once));
		await c.tell('SDK same again, while running', client.send(once));
		await client.wait(admission);
		const again = await c.tell('SDK same again, settled', client.send(once));
		await c.tell('SDK read(dedup admission)', client.read(again));
		await c.tell('SDK same key, other payload', client.send({ idempotencyKey: 'key-1', ...user('other') }));
		await c.tell('SDK empty key', client.send({ idempotencyKey: '', ...user('x') }));
		await c.tell('SDK 257-char key', client.send({ idempotencyKey: 'k'.repeat(257), ...user('x') }));
	},

	async '15-sdk-signals'(c) {
		const client = c.client('chat/c-sig');
		const message = { kind: 'signal', type: 'slack.message', body: 'ship it @id=s1 @text=2', attributes: { user: 'U1', 'x&y': '<a "b">' }, tagName: 'slack' };
		await client.read(await client.send({ message }));
		await c.tell('SDK history()', client.history());
		for (const bad of [
			{ kind: 'signal', type: '', body: 'x' },
			{ kind: 'signal', type: 'resources', body: 'x' },
			{ kind: 'signal', type: 'submission_interrupted', body: 'x' },
			{ kind: 'signal', type: 'ok', body: 'x', tagName: '1bad' },
			{ kind: 'signal', type: 'ok', body: { a: 1 } },
			{ kind: 'signal', type: 'ok', body: 'x', attributes: { n: 1 } },
		]) {
			await c.tell(`SDK send(${JSON.stringify(bad)})`, client.send({ message: bad }));
		}
	},

	async '16-sdk-tool'(c) {
		const client = c.client('tool/c-t');
		const read = async (body) => c.tell('SDK read()', client.read(await client.send(user(body))));
		await read('where @id=t1 @tool=lookup_order:{"orderId":"A1"} @text=4');
		await c.tell('SDK history()', client.history());
		await read('x @id=t2 @tool=lookup_order:{"orderId":"throw"} @text=4');
		await read('x @id=t3 @tool=lookup_order:{"wrong":1} @text=4');
		await read('x @id=t4 @tool=nope:{} @text=4');
		await read('x @id=t5 @par=3 @tools=2 @tool=lookup_order:{"orderId":"B2"} @text=4');
		await c.tell('SDK history()', client.history());
	},

	'17-sdk-tool-sse-live': (c) =>
		observeNew(c, 'tool/c-tl', 'sse', 'where @id=tl @tool=lookup_order:{"orderId":"sleep:1500"} @text=20 @delay=75'),

	async '18-sdk-durable-tool'(c) {
		const client = c.client('durable/c-d');
		await c.tell('SDK read()', client.read(await client.send(user('go @id=d1 @tool=provision:{"steps":10} @text=3'))));
		await c.tell('SDK history()', client.history());
	},

	async '20-sdk-reasoning'(c) {
		const client = c.client('chat-think/c-th');
		await c.tell('SDK read()', client.read(await client.send(user('hmm @id=th1 @think=4 @text=4'))));
		await c.tell('SDK history()', client.history());
	},

	async '22-sdk-busy-join'(c) {
		const client = c.client('chat/c-join');
		const first = await client.send(user('first @id=j1 @text=30 @delay=50'));
		await c.sleep(300);
		const second = await client.send(user('second while busy @id=j2 @text=5'));
		const third = await client.send(user('third while busy @id=j3 @text=5'));
		const replies = await Promise.all([first, second, third].map((admission) => client.read(admission)));
		c.note('SDK read(1)', replies[0]);
		c.note('SDK read(2)', replies[1]);
		c.note('SDK read(3)', replies[2]);
		await c.tell('SDK history()', client.history());
	},

	async '23-sdk-provider-error'(c) {
		const client = c.client('chat/c-pe');
		await c.tell('SDK read()', client.read(await client.send(user('x @id=pe1 @fail=500x1 @text=3'))));
		await c.tell('SDK history()', client.history());
		await c.tell('SDK read()', client.read(await client.send(user('x @id=pe2 @fail=400x99 @text=3'))));
		await c.tell('SDK history()', client.history());
	},

	async '24-sdk-provider-down'(c) {
		const client = c.client('brittle/c-pd');
		await c.tell('SDK read()', client.read(await client.send(user('x @id=pd1 @fail=503x99 @text=3'))));
		await c.tell('SDK history()', client.history());
	},

	async '25-sdk-provider-cut'(c) {
		const client = c.client('chat/c-pc');
		await c.tell('SDK read()', client.read(await client.send(user('x @id=pc1 @cut=6 @text=12 @delay=5'))));
		await c.tell('SDK history()', client.history());
	},

	async '26-sdk-render-throws'(c) {
		const client = c.client('broken/c-br');
		await c.tell('SDK read()', client.read(await client.send(user('x @id=br1'))));
		await c.tell('SDK history()', client.history());
	},

	async '28-sdk-headers-token'(c) {
		const client = c.client('chat/c-hd', { token: 'tok-1', headers: async () => ({ 'x-app': 'v1' }) });
		await client.read(await client.send(user('x @id=hd1 @text=2')));
		await client.abort();
		await fetch(c.url('chat/c-hd'), {
			method: 'POST',
			headers: {
				'content-type': 'application/json',
				traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
				tracestate: 'a=b',
			},
			body: '{"kind":"user","body":"x @text=1"}',
		});
	},
};
