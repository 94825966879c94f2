package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

// encode is json.Marshal without the escaping of HTML, which only makes a
// request longer. The values of this package always encode.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("openai: request does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// imageData returns an image as a URL, empty when b is none that can be sent.
func imageData(b model.Block) string {
	if b.Kind != model.Image {
		return ""
	}
	media := history.ImageType(b)
	if media == "" {
		return ""
	}
	return "data:" + media + ";base64," + base64.StdEncoding.EncodeToString(b.Data)
}

// blockText returns the text of a block, and what stands in for an image that
// cannot be sent.
func blockText(b model.Block) string {
	if b.Kind == model.Image {
		return history.ImageText(b)
	}
	return b.Text
}

// limit returns the most tokens that the answer may have, zero for the server's
// own limit. OpenAI's is the model's. Other servers may have a small one, so
// the model's is sent, unless it is so large that a server which reserves it
// would leave no room for the conversation.
func (s *service) limit(req *model.Request) int {
	most, window := req.Info.MaxOutput, req.Info.ContextWindow
	switch {
	case req.MaxOutput > 0:
		return req.MaxOutput
	case s.official, s.azure, most <= 0, window > 0 && most > window/2:
		return 0
	}
	return most
}

const maxCacheKey = 64

// cacheKey returns a key within the length that the API accepts.
func cacheKey(key string) string {
	if len(key) <= maxCacheKey {
		return key
	}
	return digest(key)
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
