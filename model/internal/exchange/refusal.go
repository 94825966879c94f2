package exchange

import (
	"net/http"
	"time"

	"github.com/flue-go/flue/model"
)

// Refusal returns the error for a failure that a server reported in a form of its
// own: with a status, if any, a code and words. The header may say how long to wait.
func (e *Endpoint) Refusal(status int, code, message string, header http.Header) *model.Error {
	err := e.failure(failure{status: status, code: code, message: message, retry: retryAfter(header, time.Now())})
	if id := requestID(header); id != "" {
		err.Message += " (request " + id + ")"
	}
	return err
}
