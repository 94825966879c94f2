// Package conformance checks a real server against the published clients of
// the protocol and against what was recorded of Flue 2.0.3.
//
// Its tests run the clients on Node. They need node, and the packages that
// package-lock.json names:
//
//	(cd conformance/node && npm ci)
//	go test ./conformance/...
//
// Some also run against three server processes on one PostgreSQL database, behind
// a load balancer that knows nothing; see package internal/pgtest for where it is
// looked for. Without what they need the tests are skipped, or fail if
// FLUE_REQUIRE_ALL=1 is set.
package conformance
