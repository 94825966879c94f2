// Applies changes with the reducer of the published client, which it does not
// export: a client with a fetch of our own observes them. Cases come one a line
// on the standard input, {"chunks": [...]}, and the conversation that each makes
// is printed.
import { createFlueClient } from '@flue/sdk';

const headers = (offset) => ({
	'content-type': 'application/json',
	'stream-next-offset': offset,
	'stream-up-to-date': 'true',
});

async function conversation(chunks) {
	const empty = { v: 1, conversationId: 'conv', offset: '0000000000000000_0000000000000000', messages: [], settlements: [], incarnation: 'inc' };
	const positioned = chunks.map((chunk, index) => ({ conversationId: 'conv', ...chunk, position: { batch: 1, index } }));
	const end = { type: 'submission-settled', conversationId: 'conv', submissionId: 'sub_end', outcome: 'completed', position: { batch: 2, index: 0 } };
	const client = createFlueClient({
		url: 'http://127.0.0.1/c',
		fetch: async (input, init) => {
			const url = new URL(String(input));
			if (url.searchParams.get('view') === 'history') return new Response(JSON.stringify(empty), { headers: headers(empty.offset) });
			if (url.searchParams.get('live') === 'long-poll') {
				return new Promise((_, reject) => {
					init?.signal?.addEventListener('abort', () => reject(new DOMException('Aborted', 'AbortError')));
				});
			}
			return new Response(JSON.stringify([{ type: 'stream-checkpoint', incarnation: 'inc' }, ...positioned, end]), {
				headers: headers('0000000000000000_0000000000000002'),
			});
		},
	});
	const observation = client.observe({ live: 'long-poll' });
	const state = await new Promise((resolve, reject) => {
		observation.subscribe(() => {
			const { conversation: now, phase, error } = observation.getSnapshot();
			if (now?.settlements.some((settlement) => settlement.submissionId === 'sub_end')) resolve(now);
			else if (phase === 'error' || error) reject(error);
		});
	});
	observation.close();
	return { ...state, settlements: state.settlements.filter((settlement) => settlement.submissionId !== 'sub_end') };
}

export async function reduce({ lines }) {
	for await (const line of lines) {
		const { chunks } = JSON.parse(line);
		process.stdout.write(`${JSON.stringify(await conversation(chunks))}\n`);
	}
}
