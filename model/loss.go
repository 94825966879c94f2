package model

// A Loss is something that the schema of a tool says and that a provider's own
// form of schemas cannot say, so that the model is offered less than the schema
// demands. The arguments of a call are checked against the tool's schema all the
// same.
type Loss struct {
	Tool string // the tool's name
	Path string // JSON Pointer to the place in the tool's schema; empty for the whole
	Text string // what is lost there and what became of it
}

// A LossReporter is a [Provider] that has to rewrite the schemas of some tools
// and can say what is lost. Losses makes no call.
type LossReporter interface {
	Losses(tools []Tool) []Loss
}
