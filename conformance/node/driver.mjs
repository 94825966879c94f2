// Runs one scenario against a server and prints what the client saw, one JSON
// value a line: {"label": ..., "value": ...}.
//
//	node driver.mjs SCENARIO ORIGIN
//
// It is told to go on, and asks for its connections to be cut, on its standard
// input and output: it prints {"cut": true} and waits for a line.
import { createInterface } from 'node:readline';
import { createFlueClient, readSubmissionReply } from '@flue/sdk';
import { scenarios } from './scenarios.mjs';

const [name, origin] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** What an error says, in a form that can be compared. */
function told(error) {
	return {
		name: error?.name,
		message: error?.message,
		...(error?.status !== undefined ? { status: error.status, body: error.body, hasRef: error.ref !== undefined } : {}),
		...(error?.failure !== undefined ? { failure: error.failure, targetId: error.targetId, error: error.error } : {}),
	};
}

const context = {
	origin,
	lines,
	url: (path) => `${origin}/agents/${path}`,
	client: (path, options) => createFlueClient({ url: `${origin}/agents/${path}`, ...options }),
	readSubmissionReply,
	sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
	note: (label, value) => print({ label, value: value === undefined ? null : value }),
	/** Notes what a promise gives, or the error that it gives. */
	async tell(label, promise) {
		try {
			const value = await promise;
			context.note(label, value);
			return value;
		} catch (error) {
			context.note(label, { thrown: told(error) });
			return undefined;
		}
	},
	/** Cuts every connection between this client and the server. */
	async cut() {
		print({ cut: true });
		await lines.next();
	},
	/** Waits until a condition holds, but not for ever. */
	async until(what, holds, ms = 30_000) {
		for (const end = Date.now() + ms; Date.now() < end; ) {
			if (holds()) return;
			await context.sleep(10);
		}
		throw new Error(`timed out: ${what}`);
	},
};

const scenario = scenarios[name];
if (!scenario) {
	console.error(`no scenario ${name}; there are ${Object.keys(scenarios).join(', ')}`);
	process.exit(2);
}
try {
	await scenario(context);
	print({ done: true });
	process.exit(0);
} catch (error) {
	console.error(error);
	process.exit(1);
}
