package dialect

import (
	"sync"

	"github.com/flue-go/flue/model"
)

// A Table converts the schemas of tools and keeps the results, since the same
// tools go out with every request. It is safe for concurrent use. The zero value
// is of no use; see [NewTable].
type Table struct {
	dialect Dialect

	mu      sync.Mutex
	results map[string]Result // by schema
	size    int               // bytes in it
}

// NewTable returns a Table for a dialect.
func NewTable(d Dialect) *Table { return &Table{dialect: d} }

// maxKept bounds what a Table keeps, in bytes. It begins anew then.
const maxKept = 4 << 20

// Convert is [Dialect.Convert]. The result must not be changed.
func (t *Table) Convert(tool model.Tool) Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.results[string(tool.Schema)]; ok {
		return r
	}
	r := t.dialect.Convert(tool.Schema)
	if t.size += len(tool.Schema) + len(r.Schema); t.results == nil || t.size > maxKept {
		t.results, t.size = map[string]Result{}, len(tool.Schema)+len(r.Schema)
	}
	t.results[string(tool.Schema)] = r
	return r
}

// Losses returns what is lost of the schemas of tools, as [model.LossReporter]
// has it.
func (t *Table) Losses(tools []model.Tool) []model.Loss {
	var all []model.Loss
	for _, tool := range tools {
		for _, l := range t.Convert(tool).Losses {
			l.Tool = tool.Name
			all = append(all, l)
		}
	}
	return all
}
