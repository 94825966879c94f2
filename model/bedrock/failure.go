package bedrock

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/flue-go/flue/model"
)

// tokensOfDay is the code of a throttling for which waiting does not help soon.
const tokensOfDay = "TokensPerDay"

// classify says what the service's codes mean where the status does not.
func classify(code string) model.Class {
	switch code {
	case "ThrottlingException", "TooManyRequestsException":
		return model.RateLimited
	case "ServiceUnavailableException", "ModelNotReadyException":
		return model.Overloaded
	case "ServiceQuotaExceededException", tokensOfDay:
		return model.Quota
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException",
		"SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken", "ExpiredTokenException", "ExpiredToken":
		return model.Auth
	}
	return ""
}

// inStream are the statuses of the exceptions that come within a stream, where
// they have none.
var inStream = map[string]int{
	"ValidationException": http.StatusBadRequest, "ThrottlingException": http.StatusTooManyRequests,
	"InternalServerException": http.StatusInternalServerError, "ServiceUnavailableException": http.StatusServiceUnavailable,
}

// fail returns an error of this provider.
func (p *Provider) fail(class model.Class, message string, cause error) error {
	return &model.Error{Provider: p.name, Class: class, Message: message, Err: cause}
}

// failure returns the error to report for one that the SDK returned.
func (p *Provider) failure(err error) error {
	var (
		api     smithy.APIError
		op      *smithy.OperationError // comes from the SDK, before there is a stream
		network net.Error
		urlErr  *url.Error
	)
	switch {
	case errors.As(err, &api):
		return p.refusal(err, api)
	case response(err) != nil: // with something else than a failure of the service
		return p.failures.Refusal(response(err).StatusCode, "", "", response(err).Header)
	case errors.As(err, &urlErr): // its text holds the URL
		return p.fail(model.Retryable, "no connection: "+urlErr.Err.Error(), urlErr.Err)
	case errors.As(err, &op) && strings.Contains(err.Error(), "get identity"): // what the SDK calls credentials
		return p.fail(model.Auth, "no credentials for the call: "+innermost(err).Error(), err)
	case errors.As(err, &op):
		return p.fail(model.Invalid, "the call cannot be made: "+innermost(err).Error(), err)
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return p.fail(model.Retryable, "the stream was cut before the answer was complete", err)
	}
	return p.fail(model.Retryable, "the stream broke: "+err.Error(), err)
}

// refusal returns the error for a failure that the service reported.
func (p *Provider) refusal(err error, api smithy.APIError) error {
	status, header := inStream[api.ErrorCode()], http.Header(nil)
	if resp := response(err); resp != nil {
		status, header = resp.StatusCode, resp.Header
	}
	code, message := api.ErrorCode(), api.ErrorMessage()
	if code == "UnknownError" { // which is what the SDK calls a failure without a name
		code = ""
	}
	if message == "UnknownError" {
		message = ""
	}
	var failed *types.ModelErrorException
	var broken *types.ModelStreamErrorException
	switch {
	case errors.As(err, &failed): // the status is that of a gateway
		status = original(failed.OriginalStatusCode)
	case errors.As(err, &broken):
		status = original(broken.OriginalStatusCode)
		if message == "" && broken.OriginalMessage != nil {
			message = *broken.OriginalMessage
		}
	}
	if code == "ThrottlingException" && strings.Contains(message, "per day") {
		code = tokensOfDay
	}
	return p.failures.Refusal(status, code, message, header)
}

// response returns the response that err came with, or nil when there was none.
func response(err error) *http.Response {
	var e *smithyhttp.ResponseError
	if errors.As(err, &e) && e.Response != nil && e.Response.Response != nil && e.Response.StatusCode != 0 {
		return e.Response.Response
	}
	return nil
}

func original(status *int32) int {
	if status == nil {
		return 0
	}
	return int(*status)
}

// innermost returns the error that the others are about.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
