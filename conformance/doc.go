// Package conformance checks a real server against the published clients of
// the protocol and against what was recorded of Flue 2.0.3.
//
// Its tests run the clients on Node. They need node, and the packages that
// package-lock.json names:
//
//	(cd conformance/node && npm ci)
//	go test ./conformance/...
//
// Without them the tests are skipped, or fail if FLUE_REQUIRE_ALL=1 is set.
package conformance
