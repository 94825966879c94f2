// Runs the published React hook on a conversation: mounts it, sends through it,
// loses the connection or the server, and notes what it shows in the end.
import { useFlueAgent } from '@flue/react';
import { createElement } from 'react';
import { act, create } from 'react-test-renderer';

globalThis.IS_REACT_ACT_ENVIRONMENT = true;

export async function reactHook(c) {
	const [first = 'hello @id=re1 @text=40 @delay=50'] = c.args;
	let shown;
	const statuses = [];
	function Agent() {
		shown = useFlueAgent({ url: c.url('chat/c-react') });
		if (statuses.at(-1) !== shown.status) statuses.push(shown.status);
		return null;
	}
	let root;
	await act(async () => {
		root = create(createElement(Agent));
	});
	const until = (what, holds) => act(() => c.until(what, () => holds(shown)));

	await until('the history', (s) => s.historyReady);
	await act(() => shown.sendMessage(first));
	await until('streaming', (s) => s.status === 'streaming');
	await c.sleep(500);
	await c.cut();
	await until('the first reply', (s) => s.status === 'idle' && s.settlements.length === 1);
	await act(() => shown.sendMessage('bad @id=re2 @fail=400x99'));
	await until('the failure', (s) => s.status === 'error');
	await act(() => shown.sendMessage('again @id=re3 @text=3'));
	await until('the last reply', (s) => s.status === 'idle' && s.settlements.length === 3);

	c.note('messages', shown.messages.map(({ role, parts }) => ({ role, parts })));
	c.note('outcomes', shown.settlements.map((settlement) => settlement.outcome));
	c.note('seen', ['submitted', 'streaming', 'error', 'idle'].filter((status) => statuses.includes(status)));
	await act(async () => root.unmount());
}
