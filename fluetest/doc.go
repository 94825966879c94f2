// Package fluetest kills your agent at every point at which it can matter, and
// tells you what came of it.
//
// An agent's conversation survives any crash. Whether what the agent does outside
// survives it is up to the agent: a card that is charged by a tool, a mail that is
// sent by a hook. [Crash] plays a conversation on a scripted model as often as
// there are writes to the store, and lets the process die at each of them in every
// way in which a write can fail. A new process goes on each time, as in production.
//
//	func TestOrdersSurviveCrashes(t *testing.T) {
//		fluetest.Crash(t, fluetest.Scenario{
//			Agent: func(w *fluetest.World) *flue.Agent { return newOrders(shop{w}) },
//			Model: func(req *model.Request) script.Turn {
//				if script.Step(req) == 0 {
//					return script.Call("charge", charge{Order: "ORD-1"})
//				}
//				return script.Say("Done.")
//			},
//			Messages: []flue.Message{flue.User("charge ORD-1")},
//		})
//	}
//
// The agent is your own. What it would do outside goes to the [World] instead, by
// [World.Effect] and [World.EffectWithKey]: the world outlives the processes and
// counts. The model is a function of the conversation. Nothing waits: every run is
// in a bubble of testing/synctest, in which time passes as soon as everybody waits,
// so that a few hundred deaths take about a second.
//
// # What is judged
//
// The scenario is played once undisturbed, to learn what it writes, answers and
// does. Then, however the process dies:
//
//   - every accepted message is settled once and completes, and is answered if it
//     was answered undisturbed;
//   - every request to the model is well formed: each call is answered once, by the
//     next message and in order;
//   - nothing is left open, and a message that comes later is answered;
//   - an effect happens at most once in a call or hook. One within [flue.Do] may
//     happen once more for each death, and so may one with a key, as nothing can
//     rule that out: the first is listed in [Report.Repeated];
//   - an effect that is missing is explained by what the model was told; it is
//     listed in [Report.Lost] then, and is a failure otherwise;
//   - the script answers the same conversation in the same way.
//
// Each failure says at which death it was seen, and [Replay] plays that one alone.
//
// The functions of a scenario run inside the bubble. They must not use channels,
// timers or network connections that were made outside of it. Make what the agent
// needs in [Scenario].Agent, which is called for each process, and what must outlive
// processes with [Outside].
package fluetest
