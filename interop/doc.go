// Package interop holds tests that use the official SDKs of model providers as
// judges of the codecs in model/anthropic, model/google and model/openai: both
// read the same recorded streams and must understand the same, and the SDKs'
// types must hold everything that the codecs send.
//
// It is a module of its own, so that nobody who uses Flue compiles an SDK. Its
// tests take minutes and up to two gigabytes to compile:
//
//	cd interop && go test -p 1 ./...
package interop
