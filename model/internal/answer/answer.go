// Package answer assembles the pieces of a streamed answer into the events of
// the model contract: deltas as they arrive, each block whole when it ends, in
// the order of the indices, then one Done.
package answer

import (
	"strings"

	"github.com/flue-go/flue/model"
)

// A Builder emits the events of one answer. Providers may interleave the
// pieces of several blocks; a block that ends before an earlier one is held
// back until the earlier one has ended too. It is not safe for concurrent use.
type Builder struct {
	yield   func(model.Event, error) bool
	content func() // told of each piece; may be nil
	blocks  []*Block
	ended   int // blocks before this one were emitted whole
	stopped bool
}

// A Block is one block of the answer while it is being received.
type Block struct {
	// Block holds what was received beside the text. Its Text, or the
	// Arguments of a tool call, are set when the block ends.
	model.Block

	index  int
	text   strings.Builder
	closed bool
}

// New returns a Builder that emits to yield, the yield function of a Stream.
func New(yield func(model.Event, error) bool) *Builder { return &Builder{yield: yield} }

// OnContent has f called with each piece of the answer.
func (b *Builder) OnContent(f func()) { b.content = f }

// Content is for a piece of the answer that is no part of a block's text: a
// signature, or a count of tokens.
func (b *Builder) Content() {
	if b.content != nil {
		b.content()
	}
}

// Stopped reports whether the consumer has left. Nothing is emitted after that.
func (b *Builder) Stopped() bool { return b.stopped }

// Begun reports whether a block was started.
func (b *Builder) Begun() bool { return len(b.blocks) > 0 }

// Open starts the next block.
func (b *Builder) Open(kind model.BlockKind) *Block {
	blk := &Block{Block: model.Block{Kind: kind}, index: len(b.blocks)}
	b.blocks = append(b.blocks, blk)
	b.Content()
	return blk
}

// Append adds to the text of blk, or to the arguments of a tool call, and emits
// the piece as a delta.
func (b *Builder) Append(blk *Block, s string) {
	if s == "" || blk.closed {
		return
	}
	blk.text.WriteString(s)
	b.Content()
	b.emit(model.Delta{Index: blk.index, Kind: blk.Kind, Text: s, CallID: blk.CallID, Name: blk.Name})
}

// Received returns what was appended to blk so far.
func (blk *Block) Received() string { return blk.text.String() }

// Closed reports whether blk has ended.
func (blk *Block) Closed() bool { return blk.closed }

// Close ends blk, and emits every block that no earlier one holds back.
// Closing a block again does nothing.
func (b *Builder) Close(blk *Block) {
	if blk.closed {
		return
	}
	blk.closed = true
	b.Content()
	if blk.Kind == model.ToolCall {
		blk.Arguments = blk.text.String()
	} else {
		blk.Text = blk.text.String()
	}
	for b.ended < len(b.blocks) && b.blocks[b.ended].closed {
		done := b.blocks[b.ended]
		b.ended++
		b.emit(model.BlockDone{Index: done.index, Block: done.Block})
	}
}

// CloseAll ends every open block.
func (b *Builder) CloseAll() {
	for _, blk := range b.blocks[b.ended:] {
		b.Close(blk)
	}
}

// Done ends every open block and then the answer.
func (b *Builder) Done(done model.Done) {
	b.CloseAll()
	b.emit(done)
}

// Fail ends the answer with err.
func (b *Builder) Fail(err error) {
	if !b.stopped {
		b.stopped = true
		b.yield(nil, err)
	}
}

func (b *Builder) emit(e model.Event) {
	if !b.stopped && !b.yield(e, nil) {
		b.stopped = true
	}
}
