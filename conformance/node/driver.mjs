// Runs one scenario against a server and prints what the client saw, one JSON
// value a line: {"label": ..., "value": ...}.
//
//	node driver.mjs SCENARIO ORIGIN [ARGUMENT...]
//
// It asks for things to happen on its standard output, as in {"ask": "cut"}, and
// waits for a line on its standard input that says that they have.
import { createInterface } from 'node:readline';
import { createFlueClient, readSubmissionReply } from '@flue/sdk';
import { scenarios } from './scenarios.mjs';

const [name, origin, ...args] = process.argv.slice(2);
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
	args,
	lines,
	url: (path) => `${origin}/agents/${path}`,
	client: (path, options) => createFlueClient({ url: context.url(path), ...options }),
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
	/** Lets something happen. */
	async ask(what) {
		print({ ask: what });
		await lines.next();
	},
	/** Cuts every connection between this client and the server. */
	cut: () => context.ask('cut'),
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
