package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/flue-go/flue"
)

// runFlags are the flags of the command run, and what they mean.
type runFlags struct {
	text   string
	agent  string
	id     string
	data   string
	images []string
	json   bool

	options flue.SendOptions
}

// declare adds the flags to the command.
func (f *runFlags) declare(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.text, "message", "m", "", "`text` of the message, or - to read it from standard input")
	flags.StringVar(&f.agent, "agent", "", "`name` of the agent, needed if there are several")
	flags.StringVar(&f.id, "id", "", "`id` of the conversation to begin or go on with (default a new one)")
	flags.StringVar(&f.data, "data", "", "`json` that the conversation is created with; ignored if it exists")
	flags.StringVar(&f.options.UID, "uid", "", "go on only with the conversation that has this `uid`")
	flags.BoolVar(&f.options.CreateOnly, "new", false, "fail if the conversation exists")
	flags.StringVar(&f.options.IdempotencyKey, "key", "", "idempotency `key`: the same message under the same key is sent once")
	flags.StringArrayVar(&f.images, "image", nil, "image `file` to send along; may be repeated")
	flags.BoolVar(&f.json, "json", false, "print one JSON object in place of the reply")
	c.MarkFlagsMutuallyExclusive("uid", "new")
	c.MarkFlagsMutuallyExclusive("uid", "data")
}

func (p *program) examples() string {
	name, message := p.app.Name, quote(p.app.Example)
	return fmt.Sprintf("  %s run -m %s\n  %s run --id ticket-7 -m %s\n  git diff | %s run --json -", name, message, name, message, name)
}

// quote makes s one word for a shell.
func quote(s string) string {
	if !strings.ContainsAny(s, "\"$`\\!") {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// choose checks the flags against each other and fills in what was left out.
func (r *run) choose(c *cobra.Command) error {
	// A variable of a shell script that is not set must not begin a new
	// conversation, or send without a key.
	for _, name := range [...]string{"message", "agent", "id", "data", "uid", "key"} {
		if f := c.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return fmt.Errorf("--%s is empty: give it a value or leave it out", name)
		}
	}
	if r.options.IdempotencyKey != "" && r.id == "" {
		return errors.New("--key needs --id: a key counts within one conversation")
	}
	if r.data != "" {
		var v any
		if err := json.Unmarshal([]byte(r.data), &v); err != nil {
			return fmt.Errorf("--data is not JSON: %w", err)
		}
		r.options.InitialData = json.RawMessage(r.data)
	}
	if r.id == "" {
		r.id = strings.ToLower(ulid.Make().String())
	}
	if r.agent == "" {
		if len(r.app.Agents) > 1 {
			return fmt.Errorf("there are several agents: choose one with --agent: %s", r.agents())
		}
		r.agent = r.app.Agents[0].Name
	}
	for _, a := range r.app.Agents {
		if a.Name == r.agent {
			return nil
		}
	}
	return fmt.Errorf("there is no agent %q; there is %s", r.agent, r.agents())
}

// maxMessage bounds a message that is read from standard input, in bytes.
const maxMessage = 4 << 20

// read returns the message to send. It is nil if the run only waits for the
// unfinished work of a conversation.
func (r *run) read(ctx context.Context, args []string) (*flue.Message, error) {
	text := r.text
	if len(args) > 0 {
		if text != "" {
			return nil, errors.New("there is a message in -m and in the arguments: give it once")
		}
		text = strings.Join(args, " ")
	}
	if text == "-" {
		var err error
		if text, err = readAll(ctx, r.in); err != nil {
			return nil, fmt.Errorf("reading the message from standard input: %w", err)
		}
		if text = strings.TrimRight(text, "\r\n"); strings.TrimSpace(text) == "" {
			return nil, errors.New("the message on standard input is empty")
		}
	}
	if text == "" && len(r.images) > 0 {
		return nil, errors.New("--image needs a message to go with")
	}
	if text == "" {
		return nil, nil
	}
	message := flue.User(text)
	for _, path := range r.images {
		image, err := readImage(path)
		if err != nil {
			return nil, fmt.Errorf("--image %s: %w", path, err)
		}
		message.Attachments = append(message.Attachments, image)
	}
	return &message, nil
}

// readAll reads standard input until its end or until ctx ends; a read that is
// waiting then is left to the end of the process.
func readAll(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if len(r.text) > maxMessage {
			return "", fmt.Errorf("it has more than %d bytes", maxMessage)
		}
		return string(r.text), r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// maxImage bounds an image file, in bytes. The exact limit is the protocol's.
const maxImage = 16 << 20

func readImage(path string) (flue.Attachment, error) {
	f, err := os.Open(path)
	if err != nil {
		return flue.Attachment{}, errors.Unwrap(err) // the path is known
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	switch {
	case err != nil:
		return flue.Attachment{}, err
	case len(data) > maxImage:
		return flue.Attachment{}, fmt.Errorf("it has more than %d bytes", maxImage)
	}
	mediaType, _, _ := mime.ParseMediaType(http.DetectContentType(data))
	if !strings.HasPrefix(mediaType, "image/") {
		return flue.Attachment{}, fmt.Errorf("it is not an image that is known: it looks like %s", mediaType)
	}
	return flue.Attachment{MediaType: mediaType, Filename: filepath.Base(path), Data: data}, nil
}
