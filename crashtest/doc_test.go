// Package crashtest kills a real server again and again and holds what is left
// to the promise: what was accepted is answered exactly once, and what a tool
// did is neither done twice nor forgotten.
//
//	go test ./crashtest                           500 kills, about a minute
//	go test -short ./crashtest                    25
//	FLUE_KILLS=20000 go test -timeout 0 ./crashtest -run 'TestKill$' -v
//
// The server is the test binary itself, started as another process: three agents
// with the same three tools, on the OpenAI and on the Anthropic codec, over a
// SQLite file with full durability, served over HTTP. What survives it lives in
// the test: the model services, which check every request and stream slowly
// enough to be cut; a ledger of what tools did; and clients, which send messages
// under idempotency keys, join and abort running responses, and follow them.
//
// Most kills come at a random moment after the server is ready, one in ten
// while it starts, and one in ten after it was asked to stop. At the end one
// server is left alone until everything is settled. Then the requests that the
// model services got, the histories and updates that clients got, the journals,
// the index beside them, and the ledger must agree. FLUE_SEED repeats what
// clients and the killer choose, though not what the machine makes of it; go
// test -artifacts keeps the database.
//
// # A fleet
//
// TestFleet and TestFleetLinearizable run the same server as several processes on
// one PostgreSQL, behind a balancer that hands each request to the next of them,
// each with a link of its own to the database. Nemeses come one after the other and
// in pairs. Every process writes down what it does with the ownership of instances.
//
//	FLUE_FLEET=5m go test -timeout 20m ./crashtest -run 'TestFleet$' -v
//
// # What it catches
//
// Each of these faults was put into a copy of the program, by hand, and made
// the test fail within a hundred kills:
//
//   - Interrupted calls run again: their effects begin twice.
//   - Calls run before the answer that asks for them is durable: the same.
//   - An interrupted call is recorded as a success: the ledger does not have it.
//   - The state that a call wrote is lost when its batch is not complete.
//   - The turn that a dead process left open is not closed: its conversation
//     never settles.
//   - The model is not told of its interrupted answer: it answers twice.
//   - Clients are told the text of an interrupted turn twice.
//   - Thinking blocks are not kept: the next request lacks them.
//   - A submission is settled twice in the journal: the journal cannot be folded.
//   - A settlement does not reach the index.
//   - An idempotency key is forgotten: one message is accepted twice.
//   - Messages, or batches, are acknowledged before they are durable.
//   - Batches are told to readers before they are durable: readers are told to
//     go on from offsets that do not exist.
//   - Aborts are forgotten on takeover: turns begin after them.
//   - A message that joins a response is settled with it unanswered.
//   - Work that a dead process left is not claimed.
//
// A store that does not sync passes, as it should: what a process has written
// survives it. Losses of power are for the tests of the stores.
package crashtest
