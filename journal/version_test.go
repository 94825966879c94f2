package journal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flue-go/flue/journal"
)

// decided has all members that there are, each under the version that a record
// needs which has it. Whoever adds a member adds it here: to version 1 if a reader
// that ignores it goes on as well as one that knows it, and otherwise, with a new
// version of the kind, to [journal]'s version.go. The package documentation has the
// rule. What stands here is never changed, since there are journals with it.
var decided = map[string]map[int]string{
	"born":         {1: "agent id uid incarnation initialData"},
	"admitted":     {1: "sub msg origin traceparent"},
	"abort":        {},
	"attempt":      {1: "sub n node why deadline max at"},
	"release":      {1: "sub node"},
	"entry":        {1: "id sub purpose turn msg ending"},
	"seam":         {1: "name sub resp settings work"},
	"state":        {1: "name value kept"},
	"step":         {1: "scope name value"},
	"data":         {1: "resp sub opens name value"},
	"meta":         {1: "resp sub opens value"},
	"resources":    {1: "baseline instructions declared"},
	"turn_started": {1: "turn resp sub provider model retracts fitted size budget", 2: "capped images"},
	"turn_delta":   {1: "turn resp block kind text"},
	"turn_done": {
		1: "turn resp sub stop blocks sent usage guess error provider model why answered cost atMost named work",
		2: "refused mute",
	},
	"fallback":    {1: "resp sub from to class why"},
	"called":      {1: "turn calls", 2: "once"},
	"outcome":     {1: "turn resp call tool failed content output endTurn ms kept writes"},
	"batch":       {1: "turn work"},
	"settled":     {1: "sub outcome error answer budget"},
	"repair":      {1: "from to why open messages calls"},
	"compacted":   {1: "id sub why summary dropped first keep resources before after provider model usage guess calls cost atMost"},
	"uncompacted": {1: "id sub"},

	"summarizing":  {1: "sub why provider model guess cost atMost"},
	"unsummarized": {1: "sub why error next provider model usage guess calls cost atMost"},

	// What records are made of.
	"Attachment":      {1: "id type name size"},
	"Block":           {1: "kind text call name args opaque again"},
	"Budget":          {1: "sub instance"},
	"Compaction":      {1: "off reserve keep model"},
	"ExhaustedBudget": {1: "scope limit"},
	"Limits":          {1: "turns calls tokens nanoUSD workMs"},
	"Message":         {1: "kind body files type attrs tag pin"},
	"Resource":        {1: "kind name desc digest after"},
	"Resources":       {1: "baseline instructions declared"},
	"Settings":        {1: "model fallbacks thinking compaction budget"},
	"TurnError":       {1: "class message status retryAfterMs until"},
	"Usage":           {1: "in out cacheRead cacheWrite reasoning"},
	"VarWrite":        {1: "n name value"},
}

// optional are the kinds that a reader may pass over which does not know them.
var optional = []string{"summarizing", "unsummarized"}

// decidedOn returns the version that was decided on for a member, or 0.
func decidedOn(of, member string) int {
	for v, members := range decided[of] {
		if slices.Contains(strings.Fields(members), member) {
			return v
		}
	}
	return 0
}

// A member is where a record, or a part of one, has it.
type member struct {
	field   reflect.StructField
	name    string
	version int
}

// members returns the members of a type, which is decided on under the name.
func members(t *testing.T, of string, typ reflect.Type) (all []member) {
	t.Helper()
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		v := decidedOn(of, name)
		if v == 0 {
			t.Errorf("%s has a member %q for which no version was decided on", of, name)
		}
		all = append(all, member{f, name, v})
	}
	for v, names := range decided[of] {
		for _, name := range strings.Fields(names) {
			if !slices.ContainsFunc(all, func(m member) bool { return m.name == name }) {
				t.Errorf("%s has lost the member %q of version %d", of, name, v)
			}
		}
	}
	return all
}

// fill gives v a value that is there, and calls fn for each member that what v
// consists of can have besides, while it has that one alone.
func fill(t *testing.T, v reflect.Value, needs int, fn func(path string, needs int)) {
	t.Helper()
	inner := func(v reflect.Value) {
		for _, m := range members(t, v.Type().Name(), v.Type()) {
			fill(t, v.FieldByIndex(m.field.Index), max(needs, m.version), func(path string, needs int) { fn("."+m.name+path, needs) })
		}
	}
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	defer v.Set(was)
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		v.SetBytes([]byte("1"))
		fn("", needs)
		return
	}
	switch v.Kind() {
	case reflect.Struct: // it is never absent
		inner(v)
		return
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fn("", needs)
		if v.Elem().Kind() == reflect.Struct {
			inner(v.Elem())
		}
		return
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Index(0).Kind() == reflect.Struct {
			inner(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("no way to fill a %s", v.Type())
	}
	fn("", needs)
}

// storedVersion returns the version with which a record is stored.
func storedVersion(t *testing.T, r journal.Record) int {
	t.Helper()
	data, err := journal.Encode(journal.Batch{Records: []journal.Record{r}})
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		R []struct{ V *int }
	}
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	if stored.R[0].V == nil {
		return 1
	}
	return *stored.R[0].V
}

// examples returns a new record of every kind.
func examples() (all []journal.Record) {
	seen := make(map[journal.Kind]bool)
	for _, b := range lives() {
		for _, r := range b.Records {
			if _, unknown := r.(*journal.Unknown); !unknown && !seen[r.Kind()] {
				seen[r.Kind()] = true
				all = append(all, reflect.New(reflect.TypeOf(r).Elem()).Interface().(journal.Record))
			}
		}
	}
	return all
}

// A record has a higher version exactly if it has a member that must not be
// ignored, whatever else it has.
func TestVersionOfEveryMember(t *testing.T) {
	kinds := examples()
	if len(kinds) != len(journal.Kinds()) {
		t.Errorf("%d kinds are tried, want all %d", len(kinds), len(journal.Kinds()))
	}
	for _, r := range kinds {
		kind := string(r.Kind())
		if got := storedVersion(t, r); got != 1 {
			t.Errorf("an empty %s is stored with version %d", kind, got)
		}
		v := reflect.ValueOf(r).Elem()
		for _, m := range members(t, kind, v.Type()) {
			fill(t, v.FieldByIndex(m.field.Index), m.version, func(path string, needs int) {
				if got := storedVersion(t, r); got != needs {
					t.Errorf("a %s with %s%s is stored with version %d, want %d", kind, m.name, path, got, needs)
				}
			})
		}
	}
}

// All versions that are written are read, with all members, and so is what was
// written before a member had a version of its own. A version more is that of a
// newer program.
func TestVersionsOfEveryKind(t *testing.T) {
	for _, r := range examples() {
		kind := string(r.Kind())
		newest := 1
		for v := range decided[kind] {
			newest = max(newest, v)
		}
		spoil(t, reflect.ValueOf(r).Elem())
		data, err := journal.Encode(journal.Batch{Records: []journal.Record{r}})
		if err != nil {
			t.Fatal(err)
		}
		for v := 1; v <= newest+1; v++ {
			other := strings.Replace(string(data), fmt.Sprintf(`"v":%d,"d":`, newest), `"d":`, 1)
			other = strings.Replace(other, `,"d":`, fmt.Sprintf(`,"v":%d,"d":`, v), 1)
			b, err := journal.Decode([]byte(other))
			if err != nil {
				t.Fatalf("%v\n%s", err, other)
			}
			u, unknown := b.Records[0].(*journal.Unknown)
			if unknown != (v > newest) || unknown && (u.Version != v || u.Optional != slices.Contains(optional, kind)) {
				t.Errorf("version %d of %s is read as a %T", v, kind, b.Records[0])
			}
			if unknown {
				continue
			}
			if got := storedVersion(t, b.Records[0]); got != newest {
				t.Errorf("a %s with all that there is, read as version %d, is stored with version %d, want %d", kind, v, got, newest)
			}
		}
	}
}

// The documentation has the members that need a version.
func TestDocumentedVersions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	for of, versions := range decided {
		for v, members := range versions {
			if v == 1 {
				continue
			}
			row := fmt.Sprintf("\n| `%s` | %d | `%s` |", of, v, strings.ReplaceAll(members, " ", "`, `"))
			if !strings.Contains(string(text), row) {
				t.Errorf("docs/journal.md has no row %s", row)
			}
		}
	}
}
